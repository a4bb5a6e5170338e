// Cells of queries and keys inside a kernel: the interface that makes them, and a tile of scores.
#pragma once

#include "dsl/dsl.h"
#include "kernels/antidiag_scores/antidiag_scores.h"
#include "kernels/sequence_tiles.h"

namespace kiln {

constexpr int64_t kCellTile = 128;  // rows and columns of a tile of cells
constexpr int kCellThreads = 128;   // that compute one: few, each with many rows (H200)

struct CellInterface {
  const AntidiagConfig& c;
  const SequenceInterface& sequences;  // with longest_keys
  Tensor q, k;
  const Expr &batch = sequences.batch, &heads = sequences.heads, &heads_kv = sequences.heads_kv;
  const Expr &seq = sequences.seq, &seq_kv = *sequences.seq_kv;

  CellInterface(const AntidiagConfig& config, const SequenceInterface& sequences);  // declares q, k
  CellInterface(const AntidiagConfig& config, const SequenceInterface& sequences, const Tensor& q,
                const Tensor& k);
  CellInterface(const CellInterface&) = delete;
  Expr rows() const { return ceildiv(seq, c.stride); }
  Expr cols() const { return ceildiv(seq_kv, c.stride); }
};

// Of sequence b: which tokens count, and how its cells stand to each other.
struct CellSequence : Sequence {
  CellSequence(const CellInterface& t, const Expr& b);

  Expr cell(const Expr& row) const { return floordiv(start, stride) + row; }
  Expr is_seen(const Expr& row, const Expr& col) const;
  Expr seen_cols(const Expr& row) const;  // cells 0 … n − 1 are seen

  bool causal;
  int64_t stride;
  Expr key_end, rows, cols;  // keys that count; cells of queries and keys
};

// Computes tiles of scores, through shared memory of its own.
class CellScores {
 public:
  CellScores(const CellInterface& t, const CellSequence& sequence, const Expr& head);
  // scores (fragment f32) of the cells from row and col on; what is beyond the sequence's ends
  // counts 0.
  void compute(const Expr& row, const Expr& col, const Tile& scores) const;

 private:
  const CellInterface& t_;
  const CellSequence& sequence_;
  Expr head_, head_kv_;
};

}  // namespace kiln
