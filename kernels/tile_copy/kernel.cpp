// One block copies one tile, through the registers of its threads.
#include "dsl/dsl.h"
#include "kernels/tile_copy/tile_copy.h"

namespace kiln {

Kernel tile_copy_kernel(const TileCopyConfig& config) {
  const TileCopyConfig c = validated(config);
  const int64_t tile_m = c.tile_m, tile_n = c.tile_n;
  return trace("tile_copy", {}, [&] {
    Dim rows = dim("rows"), cols = dim("cols");
    Tensor x = input("x", c.dtype, {rows, cols});
    Tensor y = output("y", c.out, {rows, cols});
    auto block = launch({ceildiv(cols, tile_n), ceildiv(rows, tile_m)});
    Span down = span(block[1] * tile_m, tile_m), across = span(block[0] * tile_n, tile_n);
    Tile tile = alloc_fragment({tile_m, tile_n}, c.dtype);
    copy(x(down, across), tile);
    copy(tile, y(down, across));
  });
}

}  // namespace kiln
