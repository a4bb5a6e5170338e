// compiles
#include "dsl/dsl.h"

kiln::Kernel program() {
  using namespace kiln;
  return trace("valid", [] {
    auto [x, y, z] = launch({4});
    Tile tile = alloc_shared({4}, F32);
    Var i = 0;
    i = i + x;
    i += y;
    i = i;
    tile(0) = tile(1);
    tile(i) += 1;
    when(i < 3 && !(x == y) || x < z, [&] { clear(tile); });
  });
}
