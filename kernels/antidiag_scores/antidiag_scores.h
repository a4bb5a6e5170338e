// Scores of cells: of each `stride` queries with each `stride` keys the sum along the
// anti-diagonal,
//   score[i, j] = sum over t < stride of q[i·stride + stride − 1 − t] · k[j·stride + t],
// by which XAttention (arXiv 2503.16428) finds the blocks that matter. Not scaled.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kernels/library_function.h"
#include "kernels/registry.h"
#include "kernels/sequences.h"

namespace kiln {

// Where query cells stand: cell i of a sequence whose queries begin at position `start`
// (bottom-right: keys − queries, else as given) is the key cells' ⌊start / stride⌋ + i. Causal, it
// sees the cells up to that one, and no key behind the sequence's last query.
struct AntidiagConfig {
  DType dtype = F16;       // of q and k: f16 or bf16
  DType out = F16;         // of the scores: f16, bf16 or f32
  int64_t head_dim = 128;  // 16 to 256, a multiple of 16
  int64_t stride = 8;      // queries and keys of a cell: 4, 8 or 16
  bool causal = true;
  // Where sequences lie (kernels/sequences.h).
  bool varlen = false, lengths = false;
  int64_t page = 0;  // implies lengths
  bool q_start = false;
  bool checked = false;  // lengths and starts are looked at as the kernel runs
  SequenceConfig sequences() const { return {varlen, lengths, page, q_start}; }
  bool operator==(const AntidiagConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it with what follows filled
// in.
AntidiagConfig validated(AntidiagConfig config);

// q, k and where they lie as kernels/sequences.h says; dims seq and seq_kv for the longest
// sequences, where q's and k's shapes do not say them. scores [batch, heads, ceil(seq / stride),
// ceil(seq_kv / stride)]: 0 where a cell is not seen or not there.
Kernel antidiag_scores_kernel(const AntidiagConfig& config);

// What cells are made of: tensors in the device's memory, any strides with a contiguous last axis.
struct CellArgs {
  Memory q, k;
  std::optional<Memory> cu_seqlens_q, cu_seqlens_k, q_start, lengths, table;
  // No sequence is longer. Of varlen, and of keys that are packed; of a cache, if it is known.
  std::optional<int64_t> max_seqlen_q, max_seqlen_k;
};
struct AntidiagArgs : CellArgs {
  Memory scores;
};
// UserError naming the argument, what was expected and what came.
void check(const AntidiagConfig& config, const CellArgs& args);
void check(const AntidiagConfig& config, const AntidiagArgs& args);

BatchSizes sizes_of(const AntidiagConfig& config, const CellArgs& args);  // of a checked call

// The sequence b of a call whose tensors are in host memory, in float64.
class CellReference {
 public:
  CellReference(const AntidiagConfig& config, const CellArgs& args, int64_t b);
  int64_t queries() const { return sequence_.q_len; }
  int64_t keys_given() const { return sequence_.k_len; }
  int64_t keys() const { return k_end_; }            // that count
  int64_t start() const { return sequence_.start; }  // of the queries
  int64_t rows() const;                              // cells of queries and keys
  int64_t cols() const;
  int64_t cell(int64_t row) const;  // where the row stands
  double score(int64_t head, int64_t row, int64_t col) const;

 private:
  const AntidiagConfig& config_;
  const CellArgs& args_;
  HostSequence sequence_;
  int64_t group_, k_end_;
};

struct AntidiagLimits {
  int64_t batch = 0, heads = 0, seq = 0, seq_kv = 0;
};
struct AntidiagInterface {
  using Config = AntidiagConfig;
  using Args = AntidiagArgs;
  using Limits = AntidiagLimits;
  static constexpr std::array<std::string_view, 8> kTensors = {
      "q", "k", "cu_seqlens_q", "cu_seqlens_k", "q_start", "lengths", "table", "scores"};
  static Kernel kernel(const Config& config) { return antidiag_scores_kernel(config); }
  static std::array<const Memory*, 8> tensors(const Args& args);
  static CallScalars<0, 2> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits);
};
using AntidiagScores = LibraryFunction<AntidiagInterface>;
AntidiagScores antidiag_scores(Device& device, const AntidiagConfig& config);

// The options that make an AntidiagConfig but for `out`, and their reading; of a call by name, the
// arguments.
std::vector<OptionInfo> cell_options();
AntidiagConfig cell_config(const Options& options);
CellArgs cell_args(const AntidiagConfig& config, const Bindings& bindings);

KernelEntry antidiag_scores_entry();

}  // namespace kiln
