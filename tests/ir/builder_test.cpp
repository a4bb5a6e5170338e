// Builder: what its calls may be given.
#include "ir/builder.h"

#include <catch2/catch.hpp>

using namespace kiln;

TEST_CASE("builder: parallel over the extents of a value, wherever values move", "[builder]") {
  Kernel kernel("extents");
  Builder build(kernel);
  const Value tile = build.alloc(Space::Fragment, F32, {2, 3});
  for (int loop = 0; loop < 300; ++loop)
    build.parallel(kernel.type(tile).shape, [&](std::span<const Value> index) {
      CHECK(index.size() == 2);
      CHECK(kernel.type(index.back()) == Type::scalar(I32));
    });
}
