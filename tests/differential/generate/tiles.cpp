// Tiles: made, filled, copied.
#include <algorithm>
#include <limits>

#include "tests/differential/generate/body.h"

namespace kiln::differential {

Range Body::best(DType dtype) const {
  return is_float(dtype) && is_small() ? Range::Small : Range::Wild;
}

TileInfo Body::make_tile(Space space, DType dtype, Shape shape, Range range) {
  Value value = builder_.alloc(space, dtype, shape);
  if (random_.chance(5)) wish_layout(value);
  return {value, space, dtype, std::move(shape), std::max(range, best(dtype)), value};
}

Shape Body::shape(size_t rank) {
  Shape extents;
  for (size_t axis = 0; axis < rank; ++axis)
    extents.push_back(rank <= 2 ? random_.pick({1, 2, 3, 5, 8, 16, 17, 24, 32, 33})
                                : random_.pick({1, 1, 2, 3, 4, 5, 7}));
  if (rank == 1 && random_.chance(20)) extents[0] = random_.between(34, 150);
  if (rank > 0 && rank <= 2 && random_.chance(8)) {  // wide, of widths that divide badly
    extents.back() = random_.pick({48, 96, 104, 229});
    if (rank == 2) extents[0] = std::min<int64_t>(extents[0], 17);
  }
  return extents;
}

void Body::add_tile() {
  const DType dtype = random_.pick({F32, F32,  F32, F16, F16, BF16, BF16, I32, I32,  I8,
                                    U8,  Bool, F64, I64, I16, U16,  U32,  U64, E4M3, E5M2});
  TileInfo tile = make_tile(any_space(), dtype,
                            shape(random_.pick({0u, 0u, 0u, 1u, 1u, 2u, 2u, 2u, 2u, 2u, 3u, 4u})));
  initialise(tile);
  scope_.tiles.push_back(tile);
}

void Body::initialise(const TileInfo& tile) {
  if (!random_.chance(60) || !load(tile, tile.value, tile.shape)) fill(tile.value, tile.dtype);
}

void Body::fill(Value destination, DType dtype) {
  if (random_.chance(30)) {
    builder_.emit(OpCode::Fill, {scalar_value(dtype), destination});
  } else if (!is_small() && is_float(dtype) && random_.chance(30)) {
    builder_.fill(std::numeric_limits<double>::quiet_NaN(), destination);
  } else {
    builder_.fill(static_cast<double>(random_.between(0, dtype == Bool ? 1 : 3)), destination);
  }
}

// Copies from a tensor, which may be too small, to a part of a tile.
bool Body::load(const TileInfo& tile, Value destination, const Shape& shape) {
  const TensorInfo& tensor = random_.pick(scope_.tensors);
  if (is_float(tile.dtype) && tensor.range > tile.range) return false;
  Value view = views_.of(tensor, shape);
  if (!view) return false;
  Attrs attrs;
  if (random_.chance(50))
    attrs.set("pad", static_cast<double>(random_.between(0, tensor.dtype == Bool ? 1 : 3)));
  builder_.emit(OpCode::Copy, {view, destination}, std::move(attrs));
  return true;
}

// A part of a tensor to a part of a tile, or of a tile to a new one or a part of another.
void Body::copy_part() {
  const TileInfo to = random_.pick(scope_.tiles), from = random_.pick(scope_.tiles);
  if (random_.chance(40)) {
    Part part = views_.of(to, true);
    load(to, part.value, part.shape);
    return;
  }
  if (random_.chance(40)) {
    Part part = views_.of(from, true);
    const bool front = random_.chance(50);
    if (random_.chance(20)) part.shape.insert(front ? part.shape.begin() : part.shape.end(), 1);
    const DType dtype = random_.pick({from.dtype, from.dtype, F32, I32, BF16});
    TileInfo made = make_tile(any_space(), dtype, part.shape, from.range);
    builder_.emit(OpCode::Copy, {part.value, made.value});
    scope_.tiles.push_back(made);
    return;
  }
  const bool fits = !is_float(to.dtype) || from.range <= to.range;
  if (from.shares_bytes(to) || from.shape.size() != to.shape.size() || !fits) return;
  Shape shape;
  for (size_t axis = 0; axis < to.shape.size(); ++axis)
    shape.push_back(random_.between(1, std::min(from.shape[axis], to.shape[axis])));
  Value source = views_.part(from, shape, true), target = views_.part(to, shape, true);
  builder_.emit(OpCode::Copy, {source, target});
}

void Body::partial_fill() {
  const TileInfo tile = random_.pick(scope_.tiles);
  fill(views_.of(tile, true).value, tile.dtype);
}

// One element of a shared tile, or a variable.
void Body::scalar_store() {
  const TileInfo tile = random_.pick(scope_.tiles);
  if (tile.space == Space::Fragment && !tile.shape.empty()) return;
  std::vector<Value> index;
  for (int64_t extent : tile.shape)
    index.push_back(random_.chance(3) ? views_.far() : views_.near(-1, extent));
  builder_.store(scalar_value(tile.dtype), tile.value, index);
}

}  // namespace kiln::differential
