#include "kernels/softmax_block_sum/block_sums.h"

namespace kiln {

BlockSums::BlockSums(int64_t tile, int64_t block, const Expr& scale, const Seen& seen)
    : tile_(tile),
      block_(block),
      scale_(scale),
      seen_(alloc_fragment({tile}, I32)),
      top_(alloc_fragment({tile}, F32)),
      old_top_(alloc_fragment({tile}, F32)),
      total_(alloc_fragment({tile}, F32)),
      tile_total_(alloc_fragment({tile}, F32)),
      by_column_(alloc_fragment({tile / block, block, tile / block}, F32)),
      sums_(alloc_fragment({tile / block, tile / block}, F32)) {
  for (auto i : parallel(tile)) seen_(i) = seen(i);
  fill(top_, -infinity(F32));
  clear(total_);
}

// How much a score weighs beside the maximum. One of -inf (nothing seen so far) is not subtracted:
// -inf − -inf would be NaN. Scaled after that, since differences of large scores are exact.
Expr BlockSums::weight(const Expr& score, const Expr& top) const {
  return exp((score - select(top == -infinity(F32), 0.f, top)) * scale_);
}

void BlockSums::mask(const Expr& first, const Tile& scores) const {
  for (auto [i, j] : parallel(tile_, tile_))
    scores(i, j) = select(first + j < seen_(i), scores(i, j), -infinity(F32));
}

void BlockSums::observe(const Expr& first, const Tile& scores) {
  mask(first, scores);
  copy(top_, old_top_);
  reduce_max(scores, top_, 1, false);
  for (auto [i, j] : parallel(tile_, tile_)) scores(i, j) = weight(scores(i, j), top_(i));
  reduce_sum(scores, tile_total_, 1);
  for (auto i : parallel(tile_))
    total_(i) = total_(i) * weight(old_top_(i), top_(i)) + tile_total_(i);
}

const Tile& BlockSums::sum(const Expr& first, const Tile& scores) {
  mask(first, scores);
  for (auto [i, j] : parallel(tile_, tile_))
    scores(i, j) = select(total_(i) > 0.f, weight(scores(i, j), top_(i)) / total_(i), 0.f);
  Tile weights = alloc_shared({tile_, tile_}, F32);  // here, so that its place is others' before
  copy(scores, weights);
  const int64_t blocks = tile_ / block_;
  reduce_sum(reshape(weights, {blocks, block_, blocks, block_}), by_column_, 3);
  reduce_sum(by_column_, sums_, 1);
  return sums_;
}

}  // namespace kiln
