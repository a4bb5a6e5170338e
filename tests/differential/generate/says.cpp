// What programs say about themselves: assertions that hold, and watches.
#include "ir/walk.h"
#include "tests/differential/generate/body.h"
#include "tests/differential/generator.h"

namespace kiln::differential {

// One that no pass is to see through.
Value Body::condition_that_holds(const std::vector<Leaf>& leaves) {
  if (random_.chance(50)) {
    Value number = expression(builder_, random_, leaves, I32, 2, numbers_);
    const int64_t most = random_.between(2, 9);
    return builder_.compare("lt", builder_.binary(OpCode::FloorMod, number, i32(most)), i32(most));
  }
  Value number = clamped(builder_, expression(builder_, random_, leaves, F32, 2, numbers_));
  return builder_.compare("le", number, builder_.constant(F32, 4));
}

void Body::device_assert() {
  Attrs attrs;
  attrs.set("text", std::string(random_.pick({"", "this holds", "\"quoted\", with 100% of {}"})));
  if (random_.chance(50)) {
    builder_.emit(OpCode::DeviceAssert, {condition_that_holds(scalar_leaves())}, std::move(attrs));
    return;
  }
  builder_.parallel(shape(random_.pick({1u, 2u})), [&](Indices index) {
    builder_.emit(OpCode::DeviceAssert, {condition_that_holds(element_leaves(index, {}))},
                  std::move(attrs));
  });
}

void Body::watch() {
  const TileInfo tile = random_.pick(scope_.tiles);
  // Not of a tile that may hold a zero of either sign.
  if (is_float(tile.dtype)) return;
  Attrs attrs;
  attrs.set("text", std::string(random_.pick({"", "a tile"})));
  builder_.emit(OpCode::Watch, {views_.of(tile, false).value}, std::move(attrs));
}

void drop_watches(Kernel& kernel) {
  walk_regions(kernel, kernel.body, [&](RegionId region) {
    std::erase_if(kernel.region(region).ops,
                  [&](OpId id) { return kernel.op(id).code == OpCode::Watch; });
  });
}

}  // namespace kiln::differential
