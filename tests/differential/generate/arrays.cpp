// Local arrays, the block's or a point's; and shared tiles under another shape or dtype.
#include "tests/differential/generate/body.h"

namespace kiln::differential {
Shape Body::array_shape() {
  return random_.chance(60) ? Shape{random_.between(1, 8)}
                            : Shape{random_.between(1, 3), random_.between(1, 4)};
}

// Calls visit(index) for every element of a small shape.
template <class Visit>
static void each_element(const Shape& shape, Visit&& visit) {
  Shape at(shape.size(), 0);
  for (int64_t left = count(shape); left > 0; --left) {
    visit(at);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++at[axis] < shape[axis]) break;
      at[axis] = 0;
    }
  }
}

void Body::add_array() {
  const DType dtype = any_dtype();
  TileInfo array = make_tile(Space::Local, dtype, array_shape());
  const bool filled = random_.chance(50);
  Value value = scalar_value(dtype);
  each_element(array.shape, [&](const Shape& at) {
    std::vector<Value> index;
    for (int64_t i : at) index.push_back(i32(i));
    if (!filled && random_.chance(40)) value = scalar_value(dtype);
    builder_.store(value, array.value, index);
  });
  scope_.arrays.push_back(array);
}

void Body::array_store() {
  if (scope_.arrays.empty()) return add_array();
  const TileInfo array = random_.pick(scope_.arrays);
  std::vector<Value> index;
  for (int64_t extent : array.shape) index.push_back(views_.near(-1, extent));
  builder_.store(scalar_value(array.dtype), array.value, index);
}

// In a parallel, an array of the point's own: wholly written, then once more at any place.
void Body::own_array(Indices index, std::vector<Leaf>& leaves) {
  const DType dtype = any_dtype();
  TileInfo array = make_tile(Space::Local, dtype, array_shape());
  Value value = value_for(dtype, leaves);
  each_element(array.shape, [&](const Shape& at) {
    std::vector<Value> place;
    for (int64_t i : at) place.push_back(i32(i));
    if (random_.chance(30)) value = value_for(dtype, leaves);
    builder_.store(value, array.value, place);
  });
  if (random_.chance(50))
    builder_.store(value_for(dtype, leaves), array.value, any_index(array.shape.size(), index));
  leaves.push_back({array.value, any_index(array.shape.size(), index), {}});
}

// A shape of as many elements.
Shape Body::shape_of(int64_t elements) {
  Shape extents;
  for (int64_t axes = random_.between(1, 3); axes > 1; --axes) {
    std::vector<int64_t> divisors;
    for (int64_t d = 1; d <= elements; ++d)
      if (elements % d == 0) divisors.push_back(d);
    extents.push_back(random_.pick(divisors));
    elements /= extents.back();
  }
  extents.push_back(elements);
  return extents;
}

TileInfo Body::reshaped(const TileInfo& tile, DType dtype) {
  const auto from = static_cast<int64_t>(size_of(tile.dtype)),
             to = static_cast<int64_t>(size_of(dtype));
  if (count(tile.shape) * from % to != 0) dtype = tile.dtype;
  TileInfo made = tile;
  made.dtype = dtype;
  made.shape = shape_of(count(tile.shape) * from / static_cast<int64_t>(size_of(dtype)));
  made.value = builder_.reshape(tile.value, made.dtype, made.shape);
  return made;
}

// The same tile twice: of the same dtype, or of another integer type.
void Body::reshape() {
  const TileInfo tile = random_.pick(scope_.tiles);
  if (tile.space != Space::Shared || tile.dtype == Bool) return;
  DType dtype = tile.dtype;
  if (is_int(dtype) && random_.chance(60))
    dtype = random_.pick({I8, I16, I32, I64, U8, U16, U32, U64});
  scope_.tiles.push_back(reshaped(tile, dtype));
}

// Bits that no op has made, which alone are the same everywhere: of numbers from a tensor as
// integers; and any integers as floats.
void Body::reinterpret() {
  const Shape extents = shape(2);
  if (is_small()) {
    const DType from = random_.pick({F16, BF16, F32, F64, E4M3, E5M2});
    TileInfo tile = make_tile(Space::Shared, from, extents);
    builder_.fill(static_cast<double>(random_.between(0, 3)), tile.value);
    const TensorInfo& tensor = scope_.tensors[0];
    Value view = is_float(tensor.dtype) && tensor.range != Range::Small
                     ? Value{}
                     : views_.of(tensor, extents);
    if (view) builder_.emit(OpCode::Copy, {view, tile.value});
    const TileInfo bits = reshaped(tile, random_.pick({I8, U16, I32, I64}));
    if (!is_int(bits.dtype)) return;
    TileInfo made = make_tile(any_space(), bits.dtype, bits.shape);
    builder_.emit(OpCode::Copy, {bits.value, made.value});
    scope_.tiles.push_back(made);
    return;
  }
  TileInfo tile = make_tile(Space::Shared, random_.pick({I8, U16, I32, I64}), extents);
  fill(tile.value, tile.dtype);
  elementwise({tile});
  const TileInfo numbers = reshaped(tile, random_.pick({F16, BF16, F32, F64, E4M3, E5M2}));
  if (!is_float(numbers.dtype)) return;
  TileInfo made = make_tile(any_space(), numbers.dtype, numbers.shape);
  builder_.emit(OpCode::Copy, {numbers.value, made.value});
  scope_.tiles.push_back(made);
}

}  // namespace kiln::differential
