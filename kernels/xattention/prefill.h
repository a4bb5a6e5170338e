// XAttention's prefill in one call: the blocks that matter are estimated and chosen, then attended.
// See xattention.h and block_sparse_attention.h, whose words these are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/xattention/xattention.h"

namespace kiln {

struct PrefillConfig {
  DType dtype = F16;       // of q, k, v, o: f16 or bf16
  int64_t head_dim = 128;  // of q and k
  int64_t head_dim_v = 0;  // of v and o; 0: as head_dim
  int64_t stride = 8;      // of cells: 4, 8 or 16
  int64_t block = 128;     // 64 or 128
  bool causal = true;
  bool lse = false;
  // The caller gets what was chosen: mask, counts and indices, as of xattn_estimate. Else it is in
  // the call's workspace.
  bool choice = false;
  bool varlen = false, lengths = false;
  int64_t page = 0;
  bool q_start = false;
  bool checked = false;
  bool fast_math = true;
  // Sequences with fewer keys are dense: there the estimate takes longer than it saves
  // (docs/xattention.md says how this was found). 0: none is.
  int64_t dense_below = kDenseBelow;
  int64_t chunk = 16384;  // as of xattn_estimate: no result depends on it, but ref_compat's
  SelectMode select_mode = SelectMode::Inverse;
  SelectConfig select;
  // Tuning, as of block_sparse_attention.
  int64_t block_m = 0, block_n = 0, stages = AttentionConfig::kChosen, threads = 0;
  Schedule schedule = Schedule::Auto;
  std::string target = {};

  static constexpr int64_t kDenseBelow = 4608;
  int64_t dim_v() const { return head_dim_v ? head_dim_v : head_dim; }
  SequenceConfig sequences() const { return {varlen, lengths, page, q_start}; }
  EstimateConfig estimate() const;
  AttentionConfig attention() const;
  bool operator==(const PrefillConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it with what is left open
// filled in, for its own target or else a device's.
PrefillConfig validated(PrefillConfig config, std::string_view target = "host");

// q, k, v, o and lse as of block_sparse_attention; thresholds, mask, counts and indices as of
// xattn_estimate (the last three if `choice`). Params scale f32 (of the attention), cell_scale f32
// (of the estimate), and threshold f32 or top_k i32.
Kernel xattention_prefill_kernel(const PrefillConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis.
struct PrefillArgs {
  Memory q, k, v, o;
  std::optional<float> threshold = {};    // in (0, 1], 0.9 if not given
  std::optional<int64_t> top_k = {};      // of SelectBy::TopK
  std::optional<Memory> thresholds = {};  // of per_head
  float norm = 1;                         // above 0: divides the estimate's scores
  std::optional<float> scale = {};        // of the attention: 1 / sqrt(head_dim) if not given
  std::optional<Memory> lse = {}, mask = {}, counts = {}, indices = {};
  std::optional<Memory> cu_seqlens_q = {}, cu_seqlens_k = {}, lengths = {}, table = {},
                        q_start = {};
  std::optional<int64_t> max_seqlen_q = {}, max_seqlen_k = {};
};
// UserError naming the argument, what was expected and what came.
void check(const PrefillConfig& config, const PrefillArgs& args);

struct PrefillLimits {
  int64_t batch = 0, heads = 0, heads_kv = 0, seq = 0, seq_kv = 0;
};
struct PrefillInterface {
  using Config = PrefillConfig;
  using Args = PrefillArgs;
  using Limits = PrefillLimits;
  static constexpr std::array<std::string_view, 14> kTensors = {"q",
                                                                "k",
                                                                "v",
                                                                "o",
                                                                "lse",
                                                                "thresholds",
                                                                "mask",
                                                                "counts",
                                                                "indices",
                                                                "cu_seqlens_q",
                                                                "cu_seqlens_k",
                                                                "lengths",
                                                                "table",
                                                                "q_start"};
  static Kernel kernel(const Config& config) { return xattention_prefill_kernel(config); }
  static std::array<const Memory*, 14> tensors(const Args& args);
  static CallScalars<3, 2> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits);
};
using XattentionPrefill = LibraryFunction<PrefillInterface>;
XattentionPrefill xattention_prefill(Device& device, const PrefillConfig& config);

// The arguments of what a prefill consists of, without what it has for itself: sums, and choice.
EstimateArgs estimate_of(const PrefillArgs& args);
AttentionArgs attention_of(const PrefillArgs& args);
// Plain float64 on host memory: o, lse, and what is chosen. Where sums are too near to tell, a
// device may choose another block.
ReferenceResults prefill_reference(const PrefillConfig& config, const PrefillArgs& args);

KernelEntry xattention_prefill_entry();

}  // namespace kiln
