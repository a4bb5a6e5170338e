#include "kernels/antidiag_scores/cells.h"

#include <algorithm>
#include <bit>

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

CellScores::CellScores(const CellInterface& t, const CellSequence& sequence, const Expr& head)
    : t_(t),
      sequence_(sequence),
      head_(head),
      head_kv_(head / (t.heads / t.heads_kv)),
      q_(alloc_shared({kCellTile, t.c.head_dim}, t.c.dtype)),
      k_(alloc_shared({kCellTile, t.c.head_dim}, t.c.dtype)) {}

void CellScores::compute(const Expr& row, const Expr& col, const Tile& scores) const {
  const CellSequence& s = sequence_;
  const int64_t stride = t_.c.stride;
  const Element query = [&](const Expr& token, const Expr& d) {
    return s.query(t_.q, head_, token, d);
  };
  const Element key = [&](const Expr& token, const Expr& d) {
    return s.key(t_.k, head_kv_, token, d);
  };
  clear(scores);
  for (auto t : serial(stride)) {
    load(query, row * stride + (stride - 1 - t), s.q_len, q_);
    load(key, col * stride + t, s.key_end, k_);
    gemm(q_, k_, scores, {.transpose_b = true});
  }
}

// A part of the rows at a time: all would take too many registers.
void CellScores::load(const Element& element, const Expr& first, const Expr& end,
                      const Tile& to) const {
  constexpr int64_t kElements = 4096;
  const int64_t dim = t_.c.head_dim;
  const int64_t part = std::min<int64_t>(std::bit_floor<uint64_t>(kElements / dim), kCellTile);
  for (auto rows : serial(kCellTile / part))
    for (auto [i, d] : parallel(part, dim)) {
      auto token = first + (rows * part + i) * t_.c.stride;
      to(rows * part + i, d) = element(select(token < end, token, -1), d);
    }
}

}  // namespace kiln
