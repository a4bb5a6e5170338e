// Cells of queries and keys inside a kernel: the interface that makes them, and a tile of scores.
#pragma once

#include <optional>

#include "dsl/dsl.h"
#include "kernels/antidiag_scores/antidiag_scores.h"

namespace kiln {

constexpr int64_t kCellTile = 64;  // rows and columns of a tile of cells

struct CellInterface {
  const AntidiagConfig& c;
  Dim batch = dim("batch"), heads = dim("heads"), heads_kv = dim("heads_kv");
  Dim seq = dim("seq"), seq_kv = dim("seq_kv");
  std::optional<Dim> tokens, tokens_kv;
  std::optional<Tensor> q, k, cu_seqlens_q, cu_seqlens_k, q_start;

  explicit CellInterface(const AntidiagConfig& config);
  Expr rows() const { return ceildiv(seq, c.stride); }
  Expr cols() const { return ceildiv(seq_kv, c.stride); }
};

// Of sequence b: where its tokens are, how many count, and how its cells stand to each other.
struct CellSequence {
  CellSequence(const CellInterface& t, const Expr& b);

  // Keys that count and cells of queries and keys, in tokens and cells.
  Expr cell(const Expr& row) const { return floordiv(start, stride) + row; }
  Expr is_seen(const Expr& row, const Expr& col) const;
  Expr seen_cols(const Expr& row) const;  // cells 0 … n − 1 are seen
  // Ends the run with an error if what the device was given is no batch of sequences.
  void check(const CellInterface& t) const;

  bool causal;
  int64_t stride;
  Expr b, q_begin, q_given, k_begin, k_given;  // lengths as given
  Expr q_len, k_len, start;                    // no longer than there is room
  Expr key_end, rows, cols;
};

// Computes tiles of scores, through shared memory of its own.
class CellScores {
 public:
  CellScores(const CellInterface& t, const CellSequence& sequence, const Expr& head);
  // scores (fragment f32, kCellTile x kCellTile) of the cells from row and col on; what is beyond
  // the sequence's ends counts 0.
  void compute(const Expr& row, const Expr& col, const Tile& scores) const;

 private:
  struct Tokens {
    Expr begin, length;  // of a sequence, in its tensor
  };
  void load(const Tensor& from, const Expr& head, const Expr& first, const Tokens& tokens,
            const Tile& to) const;

  const CellInterface& t_;
  const CellSequence& sequence_;
  Expr head_, head_kv_;
  Tile q_, k_;
};

}  // namespace kiln
