#include "tests/differential/body.h"

#include <algorithm>
#include <limits>

namespace kiln::differential {

// ---- tiles ----

Range Body::best(DType dtype) const {
  return is_float(dtype) && numbers_ == Numbers::Small ? Range::Small : Range::Wild;
}

TileInfo Body::make_tile(Space space, DType dtype, Shape shape, Range range) {
  Value value = builder_.alloc(space, dtype, shape);
  return {value, space, dtype, std::move(shape), std::max(range, best(dtype))};
}

Shape Body::shape(size_t rank) {
  Shape extents;
  for (size_t axis = 0; axis < rank; ++axis)
    extents.push_back(rank <= 2 ? random_.pick({1, 2, 3, 5, 8, 16, 17, 24, 32, 33})
                                : random_.pick({1, 1, 2, 3, 4, 5, 7}));
  if (rank == 1 && random_.chance(20)) extents[0] = random_.between(34, 150);
  return extents;
}

void Body::add_tile() {
  DType dtype = random_.pick(
      {F32, F32, F16, BF16, I32, I8, U8, Bool, F64, I64, I16, U16, U32, U64, E4M3, E5M2});
  Space space = random_.chance(50) ? Space::Shared : Space::Fragment;
  TileInfo tile =
      make_tile(space, dtype, shape(random_.pick({0u, 1u, 1u, 2u, 2u, 2u, 2u, 3u, 4u})));
  initialise(tile);
  scope_.tiles.push_back(tile);
}

void Body::initialise(const TileInfo& tile) {
  if (!random_.chance(60) || !load(tile, tile.value, tile.shape)) fill(tile.value, tile.dtype);
}

void Body::fill(Value destination, DType dtype) {
  if (random_.chance(30)) {
    builder_.emit(OpCode::Fill, {scalar_value(dtype), destination});
  } else if (numbers_ == Numbers::Any && is_float(dtype) && random_.chance(30)) {
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

// ---- statements on whole tiles ----

void Body::statements(int count, int depth) {
  for (int i = 0; i < count; ++i) statement(depth);
}

void Body::statement(int depth) {
  const size_t tiles = scope_.tiles.size();
  switch (random_.between(0, depth > 0 ? 14 : 9)) {
    case 0: return add_tile();
    case 1: return copy_part();
    case 2: return reduce();
    case 3:
    case 4: return gemm();
    case 5: return partial_fill();
    case 6: return scalar_store();
    case 7:
    case 8:
    case 9: return elementwise_of_any();
    case 10: branch(depth); break;
    case 11:
    case 12: selected(depth); break;
    default: loop(depth); break;
  }
  scope_.tiles.resize(tiles);  // tiles made inside are gone
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
    const Space space = random_.pick({Space::Shared, Space::Fragment});
    const DType dtype = random_.pick({from.dtype, from.dtype, F32, I32, BF16});
    TileInfo made = make_tile(space, dtype, part.shape, from.range);
    builder_.emit(OpCode::Copy, {part.value, made.value});
    scope_.tiles.push_back(made);
    return;
  }
  const bool fits = !is_float(to.dtype) || from.range <= to.range;
  if (from.value == to.value || from.shape.size() != to.shape.size() || !fits) return;
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

void Body::elementwise_of_any() {
  std::vector<TileInfo> targets{random_.pick(scope_.tiles)};
  const TileInfo other = random_.pick(scope_.tiles);
  if (other.shape == targets[0].shape && other.value != targets[0].value) targets.push_back(other);
  elementwise(targets);
}

// One element of a shared tile, or a variable.
void Body::scalar_store() {
  const TileInfo tile = random_.pick(scope_.tiles);
  if (tile.space == Space::Fragment && !tile.shape.empty()) return;
  std::vector<Value> index;
  for (int64_t extent : tile.shape) index.push_back(views_.near(-1, extent));
  builder_.store(scalar_value(tile.dtype), tile.value, index);
}

void Body::gemm() {
  const bool integers = numbers_ == Numbers::Any || random_.chance(20);
  const DType dtype = integers ? I32 : random_.chance(15) ? F64 : F32;
  Shape extents = shape(2);
  if (random_.chance(10)) extents.insert(extents.begin(), 1);
  TileInfo c = make_tile(Space::Fragment, dtype, extents, Range::Sum);
  const bool clear = random_.chance(40);
  if (!clear) builder_.fill(static_cast<double>(random_.between(0, 3)), c.value);
  gemm_into(c, clear);
  scope_.tiles.push_back(c);
}

void Body::gemm_into(const TileInfo& c, bool clear) {
  const DType dtype = c.dtype == I32   ? random_.pick({I8, U8})
                      : c.dtype == F64 ? F64
                                       : random_.pick({F16, BF16, F32, E4M3, E5M2});
  const int64_t m = c.shape[c.shape.size() - 2], n = c.shape.back();
  const int64_t k = random_.chance(5) ? random_.between(256, 300) : shape(2)[0];
  const bool transpose_a = random_.chance(25), transpose_b = random_.chance(40);
  Value a = gemm_operand(dtype, transpose_a ? k : m, transpose_a ? m : k);
  Value b = gemm_operand(dtype, transpose_b ? n : k, transpose_b ? k : n);
  Attrs attrs;
  attrs.set("transpose_a", transpose_a);
  attrs.set("transpose_b", transpose_b);
  attrs.set("policy", std::string(random_.pick({"square", "full_row", "full_col"})));
  attrs.set("clear", clear);
  builder_.emit(OpCode::Gemm, {a, b, c.value}, std::move(attrs));
}

// A tile, or a part of one.
Value Body::gemm_operand(DType dtype, int64_t rows, int64_t columns) {
  Shape wanted{rows, columns}, extents = wanted;
  if (random_.chance(30))
    for (int64_t& extent : extents) extent += random_.between(0, 5);
  TileInfo tile = make_tile(random_.pick({Space::Shared, Space::Fragment}), dtype, extents);
  initialise(tile);
  if (random_.chance(30)) elementwise({tile});
  return views_.part(tile, wanted, true);
}

void Body::reduce() {
  const TileInfo source = random_.pick(scope_.tiles);
  if (source.shape.empty()) return;
  const Part part = views_.of(source, true);
  std::string kind = random_.pick({"max", "min", "sum", "absmax"});
  const bool bits = source.dtype == Bool || (!is_float(source.dtype) && random_.chance(40));
  if (bits) kind = random_.pick({"and", "or", "xor"});
  DType dtype = source.dtype;
  if (is_float(dtype)) {
    if (kind == "sum" && source.range != Range::Small) kind = "max";
    dtype = kind == "sum" ? random_.pick({F32, F64, F16}) : random_.pick({dtype, F32});
  }
  const int64_t dim = random_.between(0, static_cast<int64_t>(part.shape.size()) - 1);
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
  Value destination = reduce_destination(dtype, shape);
  builder_.emit(OpCode::Reduce, {part.value, destination}, std::move(attrs));
}

// A new tile, or a part of one.
Value Body::reduce_destination(DType dtype, const Shape& shape) {
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

// ---- structure ----

void Body::branch(int depth) {
  Value condition = expression(builder_, random_, scalar_leaves(), Bool, 2, numbers_);
  OpId op = builder_.emit(OpCode::If, {condition});
  for (int i = 0, n = random_.chance(50) ? 2 : 1; i < n; ++i) {
    Builder::Scope scope(builder_, builder_.add_region(op));
    const size_t tiles = scope_.tiles.size();
    statements(static_cast<int>(random_.between(1, 3)), depth - 1);
    scope_.tiles.resize(tiles);
  }
}

void Body::region(OpId op, int depth) {
  RegionId region = builder_.add_region(op);
  scope_.scalars.push_back(builder_.kernel().add_argument(region, Type::scalar(I32)));
  Builder::Scope scope(builder_, region);
  if (depth < 0) {
    commuting_statements();
  } else {
    statements(static_cast<int>(random_.between(1, 3)), depth);
  }
  scope_.scalars.pop_back();
}

void Body::loop(int depth) {
  std::string kind = random_.pick({"serial", "unroll", "pipelined"});
  Attrs attrs;
  attrs.set("kind", kind);
  if (kind == "pipelined") attrs.set("stages", random_.between(0, 4));
  const int64_t begin = random_.between(-3, 3), step = random_.between(1, 3);
  const int64_t last = begin + kMaxTrips * step;
  Value from = builder_.constant(I32, begin), end = views_.small(begin - 1, last);
  Value by = builder_.constant(I32, step);
  if (kind != "unroll" && random_.chance(40)) {  // known only at run time
    if (random_.chance(50)) from = views_.traced(begin, begin + 2);
    end = views_.traced(begin - 1, last);
    if (random_.chance(50)) by = views_.traced(1, step);
  }
  region(builder_.emit(OpCode::For, {from, end, by}, std::move(attrs)), depth - 1);
}

// A row of a tensor, or a shared tile made from one, or a part of such; it may stick out.
Value Body::selected_row(bool is_list) {
  const TensorInfo& tensor = is_list ? scope_.list : scope_.mask;
  if (random_.chance(60)) {
    Value value = tensor.value;
    for (int i = 0, n = static_cast<int>(random_.between(1, 3)); i < n; ++i) {
      const int64_t rows = i + 1 == n ? 1 : kDynamic;
      Value row = random_.chance(70) ? scope_.scalars[0] : views_.near(-1, 2);
      Value column = views_.traced(0, random_.chance(50) ? 0 : 2);
      const int64_t length = i > 0 || random_.chance(30) ? kDynamic : int64_t{kMaxTrips};
      value = builder_.slice(value, {row, column}, {rows, length});
    }
    return value;
  }
  TileInfo tile = make_tile(Space::Shared, tensor.dtype, {2, kMaxTrips});
  Value rows = builder_.slice(tensor.value, {scope_.scalars[0], views_.small(0, 0)}, tile.shape);
  builder_.emit(OpCode::Copy, {rows, tile.value});
  return views_.part(tile, {1, random_.between(1, kMaxTrips)}, true);
}

void Body::selected(int depth) {
  const bool is_list = random_.chance(50), ordered = random_.chance(60);
  std::vector<Value> operands{selected_row(is_list)};
  auto bound = [&] {
    return random_.chance(50) ? views_.small(-1, kMaxTrips + 2) : views_.traced(-2, kMaxTrips + 2);
  };
  if (random_.chance(60)) operands.push_back(bound());
  if (is_list && random_.chance(50)) {
    operands.resize(2);
    operands.push_back(bound());
  }
  Attrs attrs;
  attrs.set("stages", random_.between(0, 3));
  attrs.set("ordered", ordered);
  region(builder_.emit(OpCode::Selected, operands, std::move(attrs)), ordered ? depth - 1 : -1);
}

// Statements whose order over the iterations of a loop does not matter: they add to what none of
// them reads otherwise.
void Body::commuting_statements() {
  const std::vector<TileInfo> all = scope_.tiles;
  auto adds = [&](const TileInfo& tile) {
    const bool wide = tile.dtype == F32 || tile.dtype == F64;
    return is_float(tile.dtype) ? wide && tile.range != Range::Wild : tile.dtype != Bool;
  };
  std::vector<TileInfo> targets;
  for (const TileInfo& tile : all)
    if (adds(tile) && tile.range != Range::Small && targets.size() < 3) targets.push_back(tile);
  std::erase_if(scope_.tiles, [&](const TileInfo& tile) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](const TileInfo& target) { return target.value == tile.value; });
  });
  if (!scope_.tiles.empty())
    for (const TileInfo& target : targets) accumulate(target);
  scope_.tiles = all;
}

void Body::accumulate(const TileInfo& target) {
  const bool matrix = target.shape.size() == 2 && target.space == Space::Fragment;
  if (matrix && (target.dtype == I32 || target.range == Range::Sum) && random_.chance(60)) {
    const size_t tiles = scope_.tiles.size();
    gemm_into(target, false);
    return scope_.tiles.resize(tiles);
  }
  const OpCode code = random_.pick({OpCode::Add, OpCode::Add, OpCode::Max});
  auto update = [&](Indices index, const std::vector<Leaf>& leaves) {
    const std::vector<Value> place(index.begin(), index.end());
    Value value = value_for(target.dtype, leaves), old = builder_.load(target.value, place);
    builder_.store(builder_.binary(code, old, value), target.value, place);
  };
  if (target.shape.empty()) return update({}, scalar_leaves());
  builder_.parallel(target.shape, [&](Indices index) { update(index, element_leaves(index, {})); });
}

}  // namespace kiln::differential
