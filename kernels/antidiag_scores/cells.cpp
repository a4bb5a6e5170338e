#include "kernels/antidiag_scores/cells.h"

namespace kiln {

CellInterface::CellInterface(const AntidiagConfig& config, const SequenceInterface& sequences)
    : CellInterface(config, sequences,
                    input("q", config.dtype, sequences.query_extents(config.head_dim)),
                    input("k", config.dtype, sequences.key_extents(config.head_dim))) {}

CellInterface::CellInterface(const AntidiagConfig& config, const SequenceInterface& sequences,
                             const Tensor& q, const Tensor& k)
    : c(config), sequences(sequences), q(q), k(k) {}

CellSequence::CellSequence(const CellInterface& t, const Expr& b)
    : Sequence(t.sequences, b),
      causal(t.c.causal),
      stride(t.c.stride),
      key_end(causal ? min(max(start + q_len, 0), k_len) : k_len),
      rows(ceildiv(q_len, stride)),
      cols(ceildiv(key_end, stride)) {}

Expr CellSequence::seen_cols(const Expr& row) const {
  return causal ? max(min(cell(row) + 1, cols), 0) : cols;
}

Expr CellSequence::is_seen(const Expr& row, const Expr& col) const {
  return row < rows && col < seen_cols(row);
}

// Columns of a step of the sum: wide rows are taken in parts, which leaves room for two blocks of
// threads a multiprocessor.
static int64_t columns_of(int64_t head_dim) {
  constexpr int64_t kMost = 64, kLeast = 32;
  for (int64_t columns = kMost; columns >= kLeast; columns -= 16)
    if (head_dim % columns == 0) return columns;
  return head_dim;
}

CellScores::CellScores(const CellInterface& t, const CellSequence& sequence, const Expr& head)
    : t_(t), sequence_(sequence), head_(head), head_kv_(head / (t.heads / t.heads_kv)) {}

void CellScores::compute(const Expr& row, const Expr& col, const Tile& scores) const {
  const CellSequence& s = sequence_;
  const auto stride = static_cast<int>(t_.c.stride);
  const int64_t columns = columns_of(t_.c.head_dim), parts = t_.c.head_dim / columns;
  Tile q = alloc_shared({scores.shape()[0], columns}, t_.c.dtype);
  Tile k = alloc_shared({scores.shape()[1], columns}, t_.c.dtype);
  clear(scores);
  for (auto step : pipelined(stride * parts, {.stages = 3})) {
    const Expr token = step / parts;
    const Expr part = step % parts * columns;
    s.load_queries(t_.q, head_, {stride, stride - 1 - token, s.q_len, row, part}, q);
    s.load_keys(t_.k, head_kv_, {stride, token, s.key_end, col, part}, k);
    gemm(q, k, scores, {.transpose_b = true, .policy = FullRow});
  }
}

}  // namespace kiln
