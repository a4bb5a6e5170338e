// Reductions, and what works on whole lines: where the largest element is, running sums, sorting.
#include <algorithm>

#include "tests/differential/generate/body.h"

namespace kiln::differential {

// A tile of the scope, or a new one with more axes than most have.
TileInfo Body::source_of_lines() {
  if (random_.chance(35)) return random_.pick(scope_.tiles);
  const DType dtype =
      random_.pick({F32, F16, BF16, I32, I8, U8, F64, I64, I16, U16, U32, U64, E4M3, E5M2});
  TileInfo tile = make_tile(any_space(), dtype, shape(random_.pick({1u, 2u, 3u, 4u, 4u, 4u, 4u})));
  initialise(tile);
  if (random_.chance(50)) elementwise({tile});
  scope_.tiles.push_back(tile);
  return tile;
}

// Later ones more often: few tiles have as many.
int64_t Body::any_axis(const Shape& shape) {
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  return std::max(random_.between(0, last), random_.between(0, last));
}

void Body::reduce() {
  const TileInfo source = source_of_lines();
  if (source.shape.empty()) return;
  const Part part = views_.of(source, true);
  std::string kind = random_.pick({"max", "min", "sum", "absmax"});
  const bool bits = source.dtype == Bool || (!is_float(source.dtype) && random_.chance(50));
  if (bits) kind = random_.pick({"and", "or", "xor"});
  DType dtype = source.dtype;
  if (is_float(dtype)) {
    if (kind == "sum" && source.range != Range::Small) kind = "max";
    dtype = kind == "sum" ? random_.pick({F32, F64, F16}) : random_.pick({dtype, F32});
  }
  const int64_t dim = any_axis(part.shape);
  Shape shape = part.shape;
  if (random_.chance(30)) {
    shape[static_cast<size_t>(dim)] = 1;
  } else {
    shape.erase(shape.begin() + dim);
  }
  Attrs attrs;
  attrs.set("kind", kind);
  attrs.set("dim", dim);
  attrs.set("clear", random_.chance(60));
  Value destination = row_destination(dtype, shape);
  builder_.emit(OpCode::Reduce, {part.value, destination}, std::move(attrs));
}

void Body::lines() {
  const TileInfo source = source_of_lines();
  if (source.shape.empty() || source.dtype == Bool) return;
  if (random_.chance(40)) return cumsum(source);
  const Part part = views_.of(source, true);
  const int64_t dim = any_axis(part.shape);
  if (random_.chance(50)) return arg_reduce(part, dim);
  sort(source.dtype, part, dim);
}

// Of small numbers: sums of others depend on their order.
void Body::cumsum(TileInfo source) {
  if (is_float(source.dtype) && source.range != Range::Small) {
    const DType dtype = is_small() ? source.dtype : I32;
    source = make_tile(any_space(), dtype, shape(random_.pick({2u, 3u, 4u, 4u})));
    initialise(source);
  }
  const Part part = views_.of(source, true);
  Attrs attrs;
  attrs.set("dim", any_axis(part.shape));
  attrs.set("reverse", random_.chance(50));
  const DType dtype = is_float(source.dtype) ? random_.pick({F32, F64, F16}) : source.dtype;
  Value sums = row_destination(dtype, part.shape);
  builder_.emit(OpCode::Cumsum, {part.value, sums}, std::move(attrs));
}

void Body::arg_reduce(const Part& part, int64_t dim) {
  Shape shape = part.shape;
  if (random_.chance(50)) {
    shape[static_cast<size_t>(dim)] = 1;
  } else {
    shape.erase(shape.begin() + dim);
  }
  Attrs attrs;
  attrs.set("dim", dim);
  attrs.set("kind", std::string(random_.pick({"max", "min"})));
  builder_.emit(OpCode::ArgReduce, {part.value, row_destination(I32, shape)}, std::move(attrs));
}

void Body::sort(DType dtype, const Part& part, int64_t dim) {
  Shape shape = part.shape;
  TileInfo values;
  const bool has_values = random_.chance(50);
  if (has_values) {
    values = make_tile(any_space(), random_.pick({F32, I32, BF16, Bool}), shape);
    initialise(values);
  }
  int64_t& extent = shape[static_cast<size_t>(dim)];
  if (random_.chance(60)) extent = random_.between(1, extent);
  Value order = row_destination(has_values ? values.dtype : I32, shape);
  Value sorted = random_.chance(60) ? row_destination(dtype, shape) : Value{};
  std::vector<Value> operands = {part.value, order};
  if (sorted || has_values) operands.push_back(sorted);
  if (has_values) operands.push_back(values.value);
  Attrs attrs;
  attrs.set("dim", dim);
  builder_.emit(OpCode::Sort, std::move(operands), std::move(attrs));
}

// A new tile, or a part of one.
Value Body::row_destination(DType dtype, const Shape& shape) {
  Shape extents = shape;
  if (random_.chance(30))
    for (int64_t& extent : extents) extent += random_.between(0, 4);
  const Space space = random_.pick({Space::Fragment, Space::Fragment, Space::Shared});
  TileInfo tile = make_tile(space, dtype, extents, Range::Wild);
  fill(tile.value, dtype);
  if (random_.chance(20)) elementwise({tile});
  scope_.tiles.push_back(tile);
  return views_.part(tile, shape, true);
}

}  // namespace kiln::differential
