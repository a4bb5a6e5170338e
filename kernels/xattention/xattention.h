// XAttention (arXiv 2503.16428): which blocks of keys each block of queries sees, from the softmax
// of anti-diagonal scores. One call: block sums, and the choice from them; the scores themselves
// are never in memory.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kernels/antidiag_scores/antidiag_scores.h"
#include "kernels/library_function.h"
#include "kernels/registry.h"
#include "kernels/select_blocks/select_blocks.h"

namespace kiln {

// How queries are paired with keys within a cell: the public code has others than Inverse, the
// anti-diagonal.
enum class SelectMode : uint8_t { Inverse, Slash, Random, Double, Triple };

struct EstimateConfig {
  DType dtype = F16;       // of q and k: f16 or bf16
  int64_t head_dim = 128;  // 16 to 256, a multiple of 16
  int64_t stride = 8;      // 4, 8 or 16
  int64_t block = 128;     // tokens of a block of queries, and of keys: 64, 128 or 256
  bool causal = true;
  // Where sequences lie (kernels/sequences.h).
  bool varlen = false, lengths = false;
  int64_t page = 0;  // implies lengths
  bool q_start = false;
  bool checked = false;  // lengths and starts are looked at as the kernel runs
  // Queries that the public code looks at together, 2048 to 131072. Without a matrix of scores
  // there is no need, and no result depends on it, but ref_compat's.
  int64_t chunk = 16384;
  // Sequences with fewer keys are not estimated: all that is visible is chosen.
  int64_t dense_below = 0;
  SelectMode select_mode = SelectMode::Inverse;  // others are errors
  SelectConfig select;                           // its causal and ref_chunk follow from the above
  int64_t threads = 0;                           // of a block that sums; 0: chosen
  bool operator==(const EstimateConfig&) const = default;

  AntidiagConfig cells() const;
};
// UserError naming the field, its legal values and what it is; returns it with what follows filled
// in.
EstimateConfig validated(EstimateConfig config);

// Tensors q, k and where they lie as antidiag_scores takes them; thresholds,
// mask, counts and indices as select_blocks does, over rows = ceil(seq / block) and cols =
// ceil(seq_kv / block); sums f32 [batch, heads, rows, cols], how much of each row block falls into
// each block, is written and read. Params scale f32 and threshold f32 or top_k i32.
// Block row R holds the queries R·block …, and its diagonal is the blocks of keys that these stand
// in: one, or two where the start is not a multiple of block. Rows without queries have no block.
Kernel xattn_estimate_kernel(const EstimateConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis.
struct EstimateArgs : CellArgs, ChoiceArgs {
  Memory sums;
  float norm = 1;  // above 0: divides the scores
};
// UserError naming the argument, what was expected and what came.
void check(const EstimateConfig& config, const EstimateArgs& args);
float scale_of(const EstimateConfig& config, const EstimateArgs& args);

struct EstimateLimits {
  int64_t batch = 0, heads = 0, seq = 0, seq_kv = 0;
};
struct EstimateInterface {
  using Config = EstimateConfig;
  using Args = EstimateArgs;
  using Limits = EstimateLimits;
  static constexpr std::array<std::string_view, 12> kTensors = {
      "q",     "k",    "cu_seqlens_q", "cu_seqlens_k", "q_start", "lengths",
      "table", "sums", "thresholds",   "mask",         "counts",  "indices"};
  static Kernel kernel(const Config& config) { return xattn_estimate_kernel(config); }
  static std::array<const Memory*, 12> tensors(const Args& args);
  static CallScalars<2, 2> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits);
};
using XattnEstimate = LibraryFunction<EstimateInterface>;
XattnEstimate xattn_estimate(Device& device, const EstimateConfig& config);

// Plain float64 on host memory; only sizes of the outputs are looked at. Sums, and the choice from
// given sums (float64's own, or a device's, whose near ties may fall the other way).
std::vector<double> estimate_sums(const EstimateConfig& config, const EstimateArgs& args);
ChoiceResults estimate_choice(const EstimateConfig& config, const EstimateArgs& args,
                              const std::vector<double>& sums);

KernelEntry xattn_estimate_entry();

}  // namespace kiln
