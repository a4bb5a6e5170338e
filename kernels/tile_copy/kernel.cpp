// One block copies one tile, through the registers of its threads.
#include "dsl/dsl.h"
#include "kernels/tile_copy/tile_copy.h"

namespace kiln {

Kernel tile_copy_kernel(const TileCopyConfig& config) {
  const TileCopyConfig c = validated(config);
  const int64_t block_m = c.block_m, block_n = c.block_n;
  return trace("tile_copy", {}, [&] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor x = input("x", c.dtype, {rows, cols});
    Tensor y = output("y", c.out, {rows, cols});
    auto block = launch({ceildiv(cols, block_n), ceildiv(rows, block_m)});
    Span down = span(block[1] * block_m, block_m), across = span(block[0] * block_n, block_n);
    Tile tile = alloc_fragment({block_m, block_n}, c.dtype);
    copy(x(down, across), tile);
    copy(tile, y(down, across));
  });
}

}  // namespace kiln
