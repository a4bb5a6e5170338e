#include "tests/differential/scope.h"

namespace kiln::differential {

Value Views::traced(int64_t low, int64_t high) {
  Value scalar = random_.pick(scope_.scalars);
  Value count = builder_.constant(I32, high - low + 1);
  Value offset = builder_.binary(OpCode::FloorMod, scalar, count);
  return builder_.binary(OpCode::Add, offset, builder_.constant(I32, low));
}

Value Views::near(int64_t low, int64_t high) {
  if (random_.chance(50)) return traced(low, high);
  Value scalar = random_.chance(50) ? scope_.scalars.back() : random_.pick(scope_.scalars);
  if (random_.chance(30)) return scalar;
  return builder_.binary(OpCode::Add, scalar, small(-3, 3));
}

Value Views::index(int64_t extent, int64_t size, bool may_stick_out) {
  if (may_stick_out && random_.chance(50)) return near(-2, std::max<int64_t>(2, extent - size));
  return small(0, extent - size);
}

Value Views::part(const TileInfo& tile, const Shape& shape, bool may_stick_out) {
  Value value = tile.value;
  Shape base = tile.shape;
  while (base != shape || random_.chance(15)) {
    if (shape.empty()) break;
    Shape next = random_.chance(70) ? shape : base;
    std::vector<Value> at;
    for (size_t axis = 0; axis < base.size(); ++axis) {
      next[axis] = random_.between(shape[axis], next[axis]);
      at.push_back(index(base[axis], next[axis], may_stick_out));
    }
    value = builder_.slice(value, at, next);
    base = next;
  }
  return value;
}

Part Views::of(const TileInfo& tile, bool may_stick_out) {
  Shape shape = tile.shape;
  if (random_.chance(50))
    for (int64_t& extent : shape)
      if (random_.chance(60)) extent = random_.between(1, extent);
  return {part(tile, shape, may_stick_out), shape};
}

Value Views::of(const TensorInfo& tensor, const Shape& shape) {
  const size_t rank = tensor.shape.size();
  const Shape wide = without_units(shape);
  if (wide.size() > rank) return {};
  Shape sizes(rank - wide.size(), 1);  // units in front, or behind
  sizes.insert(random_.chance(85) ? sizes.end() : sizes.begin(), wide.begin(), wide.end());
  Value value = tensor.value;
  Shape base = tensor.shape;
  if (random_.chance(25)) {  // through a view that reaches to the ends
    std::vector<Value> at;
    for (size_t axis = 0; axis < rank; ++axis)
      at.push_back(base[axis] == kDynamic ? small(-2, 5)
                                          : small(0, std::min<int64_t>(1, base[axis])));
    base.assign(rank, kDynamic);
    value = builder_.slice(value, at, base);
  }
  std::vector<Value> at;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t extent = base[axis];
    if (extent != kDynamic && extent < sizes[axis]) return {};
    if (random_.chance(50)) {
      at.push_back(random_.pick(scope_.scalars));
    } else if (extent == kDynamic) {
      at.push_back(small(-3, 30));
    } else {
      at.push_back(index(extent, sizes[axis], true));
    }
  }
  return builder_.slice(value, at, sizes);
}

}  // namespace kiln::differential
