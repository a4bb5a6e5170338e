// Block-sparse attention, forward: configuration, kernel, the callable, and the reference.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dsl/schedule.h"
#include "ir/kernel.h"
#include "kernels/library_function.h"
#include "kernels/masks.h"
#include "kernels/registry.h"
#include "kernels/sequences.h"

namespace kiln {

// How a caller says which key blocks a query block sees.
enum class BlockForm : uint8_t { MaskBool, MaskI8, Lists, Dense };
// What a streaming head's window counts.
enum class Streaming : uint8_t { None, Blocks, Tokens };

// What a kernel is compiled for; everything else (batch, heads, lengths, strides) is known at
// launch.
struct AttentionConfig {
  DType dtype = F16;       // of q, k, v, o: f16, bf16 or f32
  int64_t head_dim = 128;  // of q and k
  int64_t head_dim_v = 0;  // of v and o; 0: as head_dim
  BlockShape block = 64;   // of the mask or lists: 128, or {64, 128}
  bool causal = false;
  BlockForm form = BlockForm::MaskBool;
  bool lse = false;          // also write the natural-log sum of exponentials of each row
  bool written_out = false;  // spelled with reduce and exp instead of online_softmax
  bool fast_math = true;
  // Also look, on the device, for entries of lists that are no block: UserError, where a kernel
  // that is not checked skips them. Of masks there is nothing to check.
  bool checked = false;
  // Where sequences lie (kernels/sequences.h).
  bool varlen = false, lengths = false;
  int64_t page = 0;  // implies lengths
  bool q_start = false;
  // Each head is dense, sparse or streaming, as head_mask_type says; else all are as `form` says.
  bool head_types = false;
  Streaming streaming = Streaming::None;  // of streaming heads; Tokens: if causal
  bool per_kv_head = false;  // the mask or lists have a plane for each kv head, not for each head
  // Of the interface of others: what is asked for here is an error.
  float p_dropout = 0;
  bool backward = false;
  int64_t block_m = 0, block_n = 0;    // 0: chosen by tile_for; else a divisor of the block
  int64_t stages = kChosen;            // tiles of keys prefetched, 0 to 8
  int64_t threads = 0;                 // of a block on a GPU; 0: chosen by the compiler
  Schedule schedule = Schedule::Auto;  // whether scores are computed a tile of keys ahead
  std::string target = {};             // "sm_80"; empty: the device's (kernels/library_function.h)

  int64_t dim_v() const { return head_dim_v ? head_dim_v : head_dim; }
  SequenceConfig sequences() const { return {varlen, lengths, page, q_start}; }
  static constexpr int64_t kChosen = -1;
  bool operator==(const AttentionConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it with what is left open
// filled in, for its own target or, if it names none, for a device's target().
AttentionConfig validated(AttentionConfig config, std::string_view target = "host");

// Extents of tiles, divisors of the blocks; tiles of keys prefetched; threads of a block on a GPU,
// 0 as many as the compiler chooses.
struct AttentionTile {
  int64_t m = 0, n = 0, stages = 0, threads = 0;
};
AttentionTile tile_for(const AttentionConfig& config, std::string_view target = "host");
// The configurations that are measured and tested one by one.
std::span<const AttentionConfig> shipped_attention_configs();

// The DSL program. Its interface: q, k, v and where they lie as kernels/sequences.h says; o as q
// but head_dim_v wide; lse f32 [batch, heads, seq], varlen [heads, tokens], if asked for; mask
// [batch, planes, rows, cols] or counts i32 [batch, planes, rows] and indices i32 [batch, planes,
// rows, entries], a plane for each head, or each kv head, or with head_types for each sparse one;
// param scale f32. head_types: head_mask_type i32 [heads], 0 dense, 1 sparse (the n-th such head
// has plane n − 1), negative streaming; streaming_info i32 [heads, 2]: of a streaming head the
// numbers `sink` and `local` of blocks, or tokens, that it sees from the beginning and up to its
// own. Blocks are those of `block`, counted for each row of blocks from the last one that its last
// query sees; tokens from the query itself.
Kernel block_sparse_attention_kernel(const AttentionConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis. `scale` defaults to
// 1 / sqrt(head_dim). A mask or lists may be larger than needed; the surplus is ignored.
struct AttentionArgs {
  Memory q, k, v, o;
  std::optional<Memory> mask = {}, counts = {}, indices = {}, lse = {};
  std::optional<float> scale = {};
  std::optional<Memory> cu_seqlens_q = {}, cu_seqlens_k = {}, lengths = {}, table = {},
                        q_start = {}, head_mask_type = {}, streaming_info = {};
  // No sequence is longer. Of varlen, and of keys that are packed; of a cache, if it is known.
  std::optional<int64_t> max_seqlen_q = {}, max_seqlen_k = {};
};
// UserError naming the argument, what was expected and what came.
void check(const AttentionConfig& config, const AttentionArgs& args);
float scale_of(const AttentionConfig& config, const AttentionArgs& args);
BatchSizes sizes_of(const AttentionConfig& config, const AttentionArgs& args);
BlockGrid grid_of(const AttentionConfig& config, const AttentionArgs& args);  // of the longest

struct AttentionLimits {
  int64_t batch = 0, heads = 0, heads_kv = 0, seq = 0, seq_kv = 0;
};
struct AttentionInterface {
  using Config = AttentionConfig;
  using Args = AttentionArgs;
  using Limits = AttentionLimits;
  static constexpr std::array<std::string_view, 15> kTensors = {"q",
                                                                "k",
                                                                "v",
                                                                "o",
                                                                "mask",
                                                                "counts",
                                                                "indices",
                                                                "lse",
                                                                "cu_seqlens_q",
                                                                "cu_seqlens_k",
                                                                "lengths",
                                                                "table",
                                                                "q_start",
                                                                "head_mask_type",
                                                                "streaming_info"};
  static Kernel kernel(const Config& config) { return block_sparse_attention_kernel(config); }
  static std::array<const Memory*, 15> tensors(const Args& args);
  static CallScalars<1, 1> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits);
};
using BlockSparseAttention = LibraryFunction<AttentionInterface>;
// Traces and compiles, or loads what was compiled before.
BlockSparseAttention block_sparse_attention(Device& device, const AttentionConfig& config);

// Plain float64 attention of chosen rows, on host memory; o and lse of the arguments are not
// touched. `progress` is told the fraction done.
struct AttentionReference {
  std::vector<int64_t> rows;   // places of an lse: (b * heads + h) * seq + i, or h * tokens + i
  std::vector<double> o, lse;  // [rows, dim_v] and [rows]
};
AttentionReference attention_reference(const AttentionConfig& config, const AttentionArgs& args,
                                       std::vector<int64_t> rows,
                                       const std::function<void(double)>& progress = {});
// Of tokens that are in a sequence.
std::vector<int64_t> all_rows(const AttentionArgs& args);
// The elements of a result, o or lse, in rows' order.
std::vector<double> rows_of(const AttentionArgs& args, const Memory& result,
                            std::span<const int64_t> rows);

// Of all rows, in the layout of o and lse; 0 where no sequence has a token.
ReferenceResults attention_results(const AttentionConfig& config, const AttentionArgs& args);

// The mask that the arguments mean, [batch, heads, rows, cols] bool: what a row of blocks may look
// at, surplus and future blocks gone.
Array effective_mask(const AttentionConfig& config, const AttentionArgs& args);

// Work of a call: whole selected blocks, the diagonal ones too.
struct AttentionWork {
  BlockCount blocks;
  double flops = 0, bytes = 0;
};
AttentionWork attention_work(const AttentionConfig& config, const AttentionArgs& args);

}  // namespace kiln
