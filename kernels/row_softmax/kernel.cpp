// Softmax of each row. A row that fits a tile is visited once; a longer one twice: for its maximum
// and sum, then to write.
#include <cmath>

#include "dsl/dsl.h"
#include "kernels/row_softmax/row_softmax.h"

namespace kiln {

Kernel row_softmax_kernel(const RowSoftmaxConfig& config) {
  const RowSoftmaxConfig c = validated(config);
  const int64_t block_m = c.block_m, block_n = c.block_n;
  return trace("row_softmax", {.fast_math = c.fast_math}, [&] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor x = input("x", c.dtype, {rows, cols});
    Tensor y = output("y", c.dtype, {rows, cols});
    auto first_row = launch({ceildiv(rows, block_m)})[0] * block_m;

    Tile in = alloc_fragment({block_m, block_n}, F32),
         weight = alloc_fragment({block_m, block_n}, F32);
    Tile top = alloc_fragment({block_m}, F32), old_top = alloc_fragment({block_m}, F32);
    Tile sum = alloc_fragment({block_m}, F32), tile_sum = alloc_fragment({block_m}, F32);
    constexpr double kOutside = -INFINITY;  // weighs nothing
    // A maximum of -inf (so far nothing but -inf) is not subtracted: -inf − -inf would be NaN.
    auto subtracted = [&](const Expr& t) { return select(t == -infinity(F32), 0.0f, t); };
    auto in_one_visit = [&] {
      copy(x(span(first_row, block_m), span(0, block_n)), in, {.pad = kOutside});
      reduce_max(in, top, 1);
      for (auto [i, j] : parallel(block_m, block_n))
        weight(i, j) = exp(in(i, j) - subtracted(top(i)));
      reduce_sum(weight, sum, 1);
      for (auto [i, j] : parallel(block_m, block_n)) weight(i, j) = weight(i, j) / sum(i);
      copy(weight, y(span(first_row, block_m), span(0, block_n)));
    };
    auto in_two_visits = [&] {
      fill(top, -infinity(F32));
      clear(sum);
      for (auto tile : pipelined(ceildiv(cols, block_n))) {
        copy(x(span(first_row, block_m), span(tile * block_n, block_n)), in, {.pad = kOutside});
        copy(top, old_top);
        reduce_max(in, top, 1, false);
        for (auto [i, j] : parallel(block_m, block_n))
          weight(i, j) = exp(in(i, j) - subtracted(top(i)));
        reduce_sum(weight, tile_sum, 1);
        for (auto i : parallel(block_m))
          sum(i) = sum(i) * exp(old_top(i) - subtracted(top(i))) + tile_sum(i);
      }
      for (auto tile : pipelined(ceildiv(cols, block_n))) {
        copy(x(span(first_row, block_m), span(tile * block_n, block_n)), in);
        for (auto [i, j] : parallel(block_m, block_n))
          weight(i, j) = exp(in(i, j) - subtracted(top(i))) / sum(i);
        copy(weight, y(span(first_row, block_m), span(tile * block_n, block_n)));
      }
    };
    when(cols <= block_n, in_one_visit, in_two_visits);
  });
}

}  // namespace kiln
