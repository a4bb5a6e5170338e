// Gather and scatter: rows by number, from and to tensors and shared tiles.
#include "tests/differential/generate/body.h"

namespace kiln::differential {

// A tile of row numbers, number(i) for every i: shared, a part of a shared one, or a fragment.
Value Body::row_numbers(int64_t count, const std::function<Value(Value)>& number) {
  enum { Fragment, Line, Row, Column, PartOfShared };
  const auto kind = random_.between(Fragment, PartOfShared);
  const Space space = kind == Fragment ? Space::Fragment : Space::Shared;
  Shape shape{count};
  if (kind == Row) shape = {1, count};
  if (kind == Column) shape = {count, 1};
  if (kind == PartOfShared) shape = {2, count};
  TileInfo tile = make_tile(space, I32, shape);
  builder_.parallel(shape, [&](Indices index) {
    Value i = kind == Column || shape.size() == 1 ? index[0] : index[1];
    builder_.store(number(i), tile.value, {index.begin(), index.end()});
  });
  if (kind != PartOfShared) return tile.value;
  return builder_.slice(tile.value, {i32(random_.between(0, 1)), i32(0)}, {1, count});
}

void Body::gather() {
  const TileInfo from = random_.pick(scope_.tiles);
  const TensorInfo tensor = random_.pick(scope_.tensors);
  const bool of_tile = from.space == Space::Shared && !from.shape.empty() && random_.chance(60);
  Shape tail;
  Value source;
  int64_t rows = 12;
  Range range = tensor.range;
  DType dtype = tensor.dtype;
  if (of_tile) {
    source = from.value, range = from.range, dtype = from.dtype, rows = from.shape[0];
    tail.assign(from.shape.begin() + 1, from.shape.end());
  } else {
    const int64_t width = tensor.shape.back();
    if (random_.chance(80)) tail = {random_.between(1, width == kDynamic ? 20 : width)};
    source = views_.rows_of(tensor, tail);
    if (!source) return;
  }
  Shape extents{random_.pick({1, 3, 5, 8, 16, 17})};
  extents.insert(extents.end(), tail.begin(), tail.end());
  if (random_.chance(50)) dtype = is_float(dtype) ? random_.pick({F32, F16, E5M2}) : I32;
  TileInfo made = make_tile(any_space(), dtype, extents, range);
  Value start = views_.near(-1, 3);
  const int64_t step = random_.between(-3, 5);
  Value numbers = row_numbers(extents[0], [&](Value i) {
    if (random_.chance(25))  // any numbers, many of which are outside
      return expression(builder_, random_, {{{}, {}, i}, {{}, {}, start}}, I32, 3, numbers_);
    Value number = builder_.binary(OpCode::Add, builder_.binary(OpCode::Mul, i, i32(step)), start);
    return random_.chance(60) ? builder_.binary(OpCode::FloorMod, number, i32(rows)) : number;
  });
  Attrs attrs;
  if (random_.chance(50)) attrs.set("pad", static_cast<double>(random_.between(0, 1)));
  builder_.emit(OpCode::Gather, {source, numbers, made.value}, std::move(attrs));
  scope_.tiles.push_back(made);
}

Value Body::distinct_rows(int64_t count, int64_t rows) {
  const bool mirrored = random_.chance(50);
  const int64_t step = random_.between(1, 2), from = random_.between(-2, rows);
  Value moved = random_.chance(50) ? views_.traced(0, 2) : i32(0);
  Value skipped = views_.traced(0, 4);
  return row_numbers(count, [&](Value i) {
    Value at = builder_.binary(OpCode::Mul, i, i32(mirrored ? -step : step));
    at = builder_.binary(OpCode::Add, at, builder_.binary(OpCode::Add, moved, i32(from)));
    if (random_.chance(50)) return at;
    Value none = builder_.compare("eq", builder_.binary(OpCode::FloorMod, i, i32(5)), skipped);
    return builder_.select(none, i32(-1), at);
  });
}

// A new tile's rows to a shared tile's, or to a part of one.
void Body::scatter() {
  TileInfo to = random_.pick(scope_.tiles);
  if (to.space != Space::Shared || to.shape.empty()) {
    to = make_tile(Space::Shared, random_.pick({F32, F16, I32, E4M3}), shape(2));
    fill(to.value, to.dtype);
    scope_.tiles.push_back(to);
  }
  const Part part = views_.of(to, true);
  const size_t units = part.shape.size() > 1 && part.shape[0] == 1 ? 1 : 0;
  Shape extents(part.shape.begin() + static_cast<std::ptrdiff_t>(units), part.shape.end());
  const int64_t rows = extents[0];
  extents[0] = random_.pick({1, 2, 5, 8, 16});
  DType dtype = to.dtype;
  if (random_.chance(40)) dtype = is_float(dtype) ? random_.pick({F32, F16, E5M2}) : I32;
  TileInfo from = make_tile(any_space(), dtype, extents);
  initialise(from);
  if (random_.chance(40)) elementwise({from});
  Value numbers = distinct_rows(extents[0], rows);
  builder_.emit(OpCode::Scatter, {from.value, numbers, part.value});
}

}  // namespace kiln::differential
