#include "kernels/block_sparse_attention/softmax.h"

namespace kiln {

RowSoftmax::RowSoftmax(const AttentionConfig& config, const Expr& scale)
    : c_(config), scale_(scale) {
  if (!c_.written_out) {
    online_.emplace(online_softmax(c_.block_m, scale));
    return;
  }
  auto per_row = [&] { return alloc_fragment({c_.block_m}, F32); };
  state_.emplace(State{per_row(), per_row(), per_row(), per_row(), per_row(),
                       alloc_fragment({c_.block_m, c_.block_n}, F32)});
  fill(state_->top, -infinity(F32));
  clear(state_->sum);
}

void RowSoftmax::step(const Tile& s, const Tile& p, const Tile& acc) {
  online_ ? online_->step(s, p, acc) : written_out_step(s, p, acc);
}

void RowSoftmax::finish(const Tile& acc, const Tile& lse) {
  online_ ? online_->finish(acc, lse) : written_out_finish(acc, lse);
}

// A maximum that is not finite is not subtracted: -inf − -inf would be NaN.
static Expr subtracted(const Expr& top) {
  return select(abs(top) < infinity(F32), top, 0.0f);
}

void RowSoftmax::written_out_step(const Tile& s, const Tile& p, const Tile& acc) {
  auto& [top, sum, old_top, alpha, tile_sum, weight] = *state_;
  copy(top, old_top);
  reduce_max(s, top, 1, false);
  for (auto i : parallel(c_.block_m))
    alpha(i) =
        select(old_top(i) == -infinity(F32), 0.0f, exp((old_top(i) - subtracted(top(i))) * scale_));
  for (auto [i, j] : parallel(c_.block_m, c_.block_n))
    weight(i, j) = exp((s(i, j) - subtracted(top(i))) * scale_);
  reduce_sum(weight, tile_sum, 1);
  for (auto i : parallel(c_.block_m)) sum(i) = sum(i) * alpha(i) + tile_sum(i);
  for (auto [i, j] : parallel(c_.block_m, c_.dim_v()))
    acc(i, j) = select(alpha(i) == 0.0f, 0.0f, acc(i, j) * alpha(i));
  copy(weight, p);
}

void RowSoftmax::written_out_finish(const Tile& acc, const Tile& lse) {
  auto& [top, sum, old_top, alpha, tile_sum, weight] = *state_;
  for (auto [i, j] : parallel(c_.block_m, c_.dim_v()))
    acc(i, j) = select(sum(i) == 0.0f, 0.0f, acc(i, j) / sum(i));
  for (auto i : parallel(c_.block_m))
    lse(i) = select(sum(i) == 0.0f, -infinity(F32), scale_ * top(i) + log(sum(i)));
}

}  // namespace kiln
