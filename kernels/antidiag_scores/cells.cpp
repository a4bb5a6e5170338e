#include "kernels/antidiag_scores/cells.h"

#include <algorithm>
#include <bit>

namespace kiln {
namespace {

Expr i32(int64_t value) {
  return cast(value, I32);
}

Expr begin_of(const std::optional<Tensor>& cu_seqlens, const Expr& b) {
  return cu_seqlens ? Expr((*cu_seqlens)(b)) : i32(0);
}
Expr length_of(const std::optional<Tensor>& cu_seqlens, const Expr& b, const Expr& whole) {
  return cu_seqlens ? (*cu_seqlens)(b + 1) - (*cu_seqlens)(b) : whole;
}
Expr within(const Expr& length, const Expr& most) {
  return min(max(length, 0), most);
}

}  // namespace

CellInterface::CellInterface(const AntidiagConfig& config) : c(config) {
  if (c.varlen) {
    tokens.emplace("tokens");
    tokens_kv.emplace("tokens_kv");
    q.emplace(input("q", c.dtype, {*tokens, heads, c.head_dim}));
    k.emplace(input("k", c.dtype, {*tokens_kv, heads_kv, c.head_dim}));
    cu_seqlens_q.emplace(input("cu_seqlens_q", I32, {batch + 1}));
    cu_seqlens_k.emplace(input("cu_seqlens_k", I32, {batch + 1}));
  } else {
    q.emplace(input("q", c.dtype, {batch, heads, seq, c.head_dim}));
    k.emplace(input("k", c.dtype, {batch, heads_kv, seq_kv, c.head_dim}));
  }
  if (c.q_start) q_start.emplace(input("q_start", I32, {batch}));
}

CellSequence::CellSequence(const CellInterface& t, const Expr& b)
    : causal(t.c.causal),
      stride(t.c.stride),
      b(b),
      q_begin(begin_of(t.cu_seqlens_q, b)),
      q_given(length_of(t.cu_seqlens_q, b, t.seq)),
      k_begin(begin_of(t.cu_seqlens_k, b)),
      k_given(length_of(t.cu_seqlens_k, b, t.seq_kv)),
      q_len(within(q_given, t.seq)),
      k_len(within(k_given, t.seq_kv)),
      start(t.q_start ? Expr((*t.q_start)(b)) : k_len - q_len),
      key_end(causal ? within(start + q_len, k_len) : k_len),
      rows(ceildiv(q_len, stride)),
      cols(ceildiv(key_end, stride)) {}

Expr CellSequence::seen_cols(const Expr& row) const {
  return causal ? max(min(cell(row) + 1, cols), 0) : cols;
}

Expr CellSequence::is_seen(const Expr& row, const Expr& col) const {
  return row < rows && col < seen_cols(row);
}

void CellSequence::check(const CellInterface& t) const {
  if (t.c.varlen) {
    device_assert(q_given >= 0 && k_given >= 0,
                  "cu_seqlens: expected numbers that do not become smaller");
    device_assert(q_given <= t.seq && k_given <= t.seq_kv,
                  "cu_seqlens: expected no sequence longer than max_seqlen");
    device_assert(q_begin >= 0 && k_begin >= 0 && q_begin + q_given <= *t.tokens &&
                      k_begin + k_given <= *t.tokens_kv,
                  "cu_seqlens: expected no more tokens than there are");
  }
  if (t.c.q_start)
    device_assert(start >= 0 && start + q_len <= k_len,
                  "q_start: expected 0 or more, with keys for all queries behind it");
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
  clear(scores);
  for (auto t : serial(stride)) {
    load(*t_.q, head_, row * stride + (stride - 1 - t), {s.q_begin, s.q_len}, q_);
    load(*t_.k, head_kv_, col * stride + t, {s.k_begin, s.key_end}, k_);
    gemm(q_, k_, scores, {.transpose_b = true});
  }
}

// Row i: the token first + i·stride; what is not there reads as 0. A part of the rows at a time:
// all would take too many registers.
void CellScores::load(const Tensor& from, const Expr& head, const Expr& first, const Tokens& tokens,
                      const Tile& to) const {
  constexpr int64_t kElements = 4096;
  const int64_t dim = t_.c.head_dim;
  const int64_t part = std::min<int64_t>(std::bit_floor<uint64_t>(kElements / dim), kCellTile);
  for (auto rows : serial(kCellTile / part))
    for (auto [i, d] : parallel(part, dim)) {
      auto token = first + (rows * part + i) * t_.c.stride;
      auto at = select(token < tokens.length, tokens.begin + token, -1);
      to(rows * part + i, d) =
          t_.c.varlen ? Expr(from(at, head, d)) : Expr(from(sequence_.b, head, at, d));
    }
}

}  // namespace kiln
