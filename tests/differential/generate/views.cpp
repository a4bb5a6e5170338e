#include "tests/differential/generate/views.h"

#include <algorithm>

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

Value Views::far() {
  const int64_t end = random_.chance(50) ? INT32_MAX : INT32_MIN;
  Value here = traced(0, 3);
  return builder_.binary(end > 0 ? OpCode::Sub : OpCode::Add, builder_.constant(I32, end), here);
}

Value Views::index(int64_t extent, int64_t size, bool may_stick_out) {
  if (may_stick_out && random_.chance(2)) return far();
  if (may_stick_out && random_.chance(50)) return near(-2, std::max<int64_t>(2, extent - size));
  return small(0, extent - size);
}

Value Views::index_in(int64_t extent, int64_t size) {
  if (random_.chance(50)) return random_.pick(scope_.scalars);
  return extent == kDynamic ? small(-3, 30) : index(extent, size, true);
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
  if (rank > 1 && random_.chance(20)) {
    const int axis = static_cast<int>(random_.between(0, static_cast<int64_t>(rank) - 2));
    value = some_of(tensor.value, axis);
    base[static_cast<size_t>(axis)] = kDynamic;
  }
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
    if (base[axis] != kDynamic && base[axis] < sizes[axis]) return {};
    at.push_back(index_in(base[axis], sizes[axis]));
  }
  return builder_.slice(value, at, sizes);
}

Value Views::some_of(Value tensor, int axis) {
  const Value first = random_.chance(90) ? traced(-1, 4) : far();
  const Value end = random_.chance(40) ? far() : traced(-1, 20);
  return builder_.every(tensor, axis, random_.pick({1, 2, 3, 8}), first, end);
}

Value Views::rows_of(const TensorInfo& tensor, const Shape& tail) {
  const size_t rank = tensor.shape.size();
  if (rank < tail.size() + 1) return {};
  const size_t axis_of_rows = rank - tail.size() - 1;
  Shape sizes(axis_of_rows, 1);
  const int64_t rows = tensor.shape[axis_of_rows];
  sizes.push_back(rows == kDynamic || random_.chance(50) ? kDynamic : random_.between(1, rows));
  sizes.insert(sizes.end(), tail.begin(), tail.end());
  std::vector<Value> at;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t extent = tensor.shape[axis], size = sizes[axis];
    if (extent != kDynamic && extent < size) return {};
    // From a constant index the whole of a static axis that is as large.
    const bool to_end = size == kDynamic;
    at.push_back(to_end ? random_.chance(60) ? small(0, 0) : traced(-1, 2)
                        : index_in(extent, size));
  }
  const bool some = !tail.empty() && sizes[axis_of_rows] == kDynamic && random_.chance(20);
  return builder_.slice(some ? some_of(tensor.value, static_cast<int>(axis_of_rows)) : tensor.value,
                        at, sizes);
}

}  // namespace kiln::differential
