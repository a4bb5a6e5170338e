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
  bool varlen = false;   // sequences are packed, as cu_seqlens says
  bool q_start = false;  // positions of the first queries are given; else bottom-right
  bool checked = false;  // lengths and starts are looked at as the kernel runs
  bool operator==(const AntidiagConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it.
AntidiagConfig validated(const AntidiagConfig& config);

// q [batch, heads, seq, head_dim] and k [batch, heads_kv, seq_kv, head_dim]; varlen: q [tokens,
// heads, head_dim], k [tokens_kv, heads_kv, head_dim], cu_seqlens_q and cu_seqlens_k i32 [batch +
// 1], dims seq and seq_kv for the longest ones. q_start i32 [batch] if asked for. scores [batch,
// heads, ceil(seq / stride), ceil(seq_kv / stride)]: 0 where a cell is not seen or not there.
Kernel antidiag_scores_kernel(const AntidiagConfig& config);

// What cells are made of: tensors in the device's memory, any strides with a contiguous last axis.
struct CellArgs {
  Memory q, k;
  std::optional<Memory> cu_seqlens_q, cu_seqlens_k, q_start;
  std::optional<int64_t> max_seqlen_q, max_seqlen_k;  // of varlen: no sequence is longer
};
struct AntidiagArgs : CellArgs {
  Memory scores;
};
// UserError naming the argument, what was expected and what came.
void check(const AntidiagConfig& config, const CellArgs& args);
void check(const AntidiagConfig& config, const AntidiagArgs& args);

// Sizes of a checked call.
struct CellSizes {
  int64_t batch = 0, heads = 0, heads_kv = 0, seq = 0, seq_kv = 0;
};
CellSizes sizes_of(const AntidiagConfig& config, const CellArgs& args);

// The sequence b of a call whose tensors are in host memory, in float64.
class CellReference {
 public:
  CellReference(const AntidiagConfig& config, const CellArgs& args, int64_t b);
  int64_t queries() const { return q_len_; }
  int64_t keys() const { return k_end_; }   // that count
  int64_t start() const { return start_; }  // of the queries
  int64_t rows() const;                     // cells of queries and keys
  int64_t cols() const;
  int64_t cell(int64_t row) const;  // where the row stands
  double score(int64_t head, int64_t row, int64_t col) const;

 private:
  const AntidiagConfig& config_;
  const CellArgs& args_;
  int64_t b_, group_, q_begin_ = 0, k_begin_ = 0, q_len_, k_end_, start_;
};

struct AntidiagLimits {
  int64_t batch = 0, heads = 0, seq = 0, seq_kv = 0;
};
struct AntidiagInterface {
  using Config = AntidiagConfig;
  using Args = AntidiagArgs;
  using Limits = AntidiagLimits;
  static constexpr std::array<std::string_view, 6> kTensors = {
      "q", "k", "cu_seqlens_q", "cu_seqlens_k", "q_start", "scores"};
  static Kernel kernel(const Config& config) { return antidiag_scores_kernel(config); }
  static std::array<const Memory*, 6> tensors(const Args& args);
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
