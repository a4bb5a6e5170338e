// Loops that move tiles through a few shared buffers, as attention and gemm do: each round fetches,
// uses, fills and stores in any order, so that a copy of a later round must not come too early nor
// too late; alone, one after the other on the same buffers, one in the other, or under a branch.
#include <algorithm>

#include "tests/differential/generate/body.h"

namespace kiln::differential {

void Body::pipeline(int depth) {
  const int64_t rows = random_.pick({1, 3, 8, 16, 17, 32}),
                columns = random_.pick({3, 8, 16, 24, 48});
  const DType dtype =
      is_small() ? random_.pick({F16, F16, BF16, F32, E4M3, F64}) : random_.pick({I8, U8});
  Buffers buffers;
  for (int i = 0, n = static_cast<int>(random_.between(1, 3)); i < n; ++i) {
    // Square ones work as both operands.
    buffers.shared.push_back(make_tile(Space::Shared, dtype, {rows, columns}));
    initialise(buffers.shared.back());
  }
  const DType sum = is_float(dtype) ? (dtype == F64 ? F64 : F32) : I32;
  buffers.sums.push_back(make_tile(Space::Fragment, sum, {rows, columns}, Range::Sum));
  buffers.sums.push_back(make_tile(Space::Fragment, sum, {rows, rows}, Range::Sum));
  for (const TileInfo& tile : buffers.sums) builder_.fill(0, tile.value);
  for (const TileInfo& tile : buffers.sums) scope_.tiles.push_back(tile);
  for (const TileInfo& tile : buffers.shared) scope_.tiles.push_back(tile);
  for (int i = 0, n = random_.chance(35) ? 2 : 1; i < n; ++i) pipeline_loop(buffers, depth);
}

void Body::pipeline_loop(const Buffers& buffers, int depth) {
  OpId op = random_.chance(25) ? selected_op(true) : for_op("pipelined", random_.between(0, 4));
  RegionId region = builder_.add_region(op);
  Inner inner(scope_);
  scope_.scalars.push_back(builder_.kernel().add_argument(region, Type::scalar(I32)));
  Builder::Scope scope(builder_, region);
  Value row = scope_.scalars.back();
  if (random_.chance(25)) {  // the place comes from memory
    row = builder_.load(scope_.list.value, {scope_.scalars[0], row});
    row = builder_.binary(OpCode::Add, row, views_.small(0, 3));
  }
  for (int i = 0, n = static_cast<int>(random_.between(2, 5)); i < n; ++i)
    pipeline_step(buffers, row, depth);
}

void Body::pipeline_step(const Buffers& buffers, Value& row, int depth) {
  const TileInfo buffer = random_.pick(buffers.shared);
  const bool nest = depth > 0;
  switch (random_.weighted({30, 30, 8, 8, 8, nest ? 8 : 0, nest ? 6 : 0})) {
    case 0: return fetch(buffer, row);
    case 1: return use(buffers);
    case 2: return fill(views_.of(buffer, true).value, buffer.dtype);
    case 3: return elementwise({buffer});
    case 4: {
      const TileInfo from = random_.pick(buffers.shared);
      if (!from.shares_bytes(buffer)) builder_.emit(OpCode::Copy, {from.value, buffer.value});
      return;
    }
    case 5: {
      Value condition = expression(builder_, random_, scalar_leaves(), Bool, 1, numbers_);
      OpId op = builder_.emit(OpCode::If, {condition});
      Builder::Scope scope(builder_, builder_.add_region(op));
      Inner inner(scope_);
      if (random_.chance(30)) return pipeline_loop(buffers, depth - 1);
      for (int i = 0; i < 2; ++i) pipeline_step(buffers, row, 0);
      return;
    }
    default: return pipeline_loop(buffers, depth - 1);
  }
}

// From a tensor, rows that depend on the loop; all of the buffer, or a part.
void Body::fetch(const TileInfo& buffer, Value row) {
  std::vector<TensorInfo> wide;
  for (const TensorInfo& tensor : scope_.tensors)
    if (tensor.shape.size() >= 2 && (!is_float(buffer.dtype) || tensor.range <= buffer.range))
      wide.push_back(tensor);
  if (wide.empty()) return;
  const TensorInfo& tensor = random_.pick(wide);
  const bool whole = random_.chance(70);
  Part to = whole ? Part{buffer.value, buffer.shape} : views_.of(buffer, true);
  const int64_t width = tensor.shape.back();
  if (width != kDynamic && width < to.shape[1]) {  // as much as there is
    to.shape[1] = width;
    to.value = views_.part(buffer, to.shape, true);
  }
  Shape sizes(tensor.shape.size() - 2, 1);
  sizes.insert(sizes.end(), to.shape.begin(), to.shape.end());
  std::vector<Value> at(sizes.size() - 2);
  for (Value& index : at) index = random_.pick(scope_.scalars);
  const int64_t rows = tensor.shape[at.size()];
  if (rows != kDynamic && rows < to.shape[0]) return;
  at.push_back(random_.chance(70) ? builder_.binary(OpCode::Mul, row, views_.small(1, 8)) : row);
  const int64_t most = width == kDynamic ? 4 : width - to.shape[1];
  at.push_back(random_.chance(60) ? i32(0) : views_.small(0, most));
  Attrs attrs;
  if (random_.chance(30)) attrs.set("pad", static_cast<double>(random_.between(0, 1)));
  Value view = builder_.slice(tensor.value, at, sizes);
  builder_.emit(OpCode::Copy, {view, to.value}, std::move(attrs));
}

// Adds a buffer, or the product of two, to a sum.
void Body::use(const Buffers& buffers) {
  const TileInfo a = random_.pick(buffers.shared), b = random_.pick(buffers.shared);
  if (random_.chance(60)) {
    Attrs attrs;
    attrs.set("transpose_b", true);
    attrs.set("policy", std::string(random_.pick({"square", "full_row", "full_col"})));
    builder_.emit(OpCode::Gemm, {a.value, b.value, buffers.sums[1].value}, std::move(attrs));
    return;
  }
  const TileInfo& sum = buffers.sums[0];
  builder_.parallel(sum.shape, [&](Indices index) {
    Value more = builder_.cast(builder_.load(a.value, {index[0], index[1]}), sum.dtype);
    Value old = builder_.load(sum.value, {index[0], index[1]});
    builder_.store(builder_.binary(OpCode::Add, old, more), sum.value, {index[0], index[1]});
  });
}

}  // namespace kiln::differential
