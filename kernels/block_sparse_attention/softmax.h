// The softmax of the attention kernel, in two spellings that mean the same.
#pragma once

#include <optional>

#include "dsl/dsl.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"

namespace kiln {

// The language's own online_softmax or, if `written_out`, the same with reduce, exp and select.
class RowSoftmax {
 public:
  RowSoftmax(const AttentionConfig& config, const Expr& scale);
  // p = exp(scale·(s − maximum so far)); acc and the sum follow a maximum that grew.
  void step(const Tile& s, const Tile& p, const Tile& acc);
  // acc /= sum and lse; 0 and -inf for a row that saw nothing.
  void finish(const Tile& acc, const Tile& lse);

 private:
  void written_out_step(const Tile& s, const Tile& p, const Tile& acc);
  void written_out_finish(const Tile& acc, const Tile& lse);

  struct State {
    Tile top, sum, old_top, alpha, tile_sum, weight;
  };
  const AttentionConfig& c_;
  Expr scale_;
  std::optional<OnlineSoftmax> online_;
  std::optional<State> state_;
};

}  // namespace kiln
