// The block's own rows of a tensor that it reads and writes: what is copied from there must not be
// copied too early.
#include "tests/differential/generate/body.h"

namespace kiln::differential {

// Some of the block's rows of a tensor, which it also reads.
void Body::store_own_rows() {
  if (scope_.owned.empty()) return;
  const AtomicTensor own = random_.pick(scope_.owned);
  const int64_t rows = random_.between(1, own.rows);
  const int64_t width = own.tensor.shape.back();
  const int64_t columns = random_.chance(50) ? width : random_.between(1, width);
  TileInfo tile = make_tile(any_space(), own.tensor.dtype, {rows, columns});
  fill(tile.value, tile.dtype);
  if (random_.chance(70)) elementwise({tile});
  Shape sizes(own.start.size() - 1, 1);
  sizes.insert(sizes.end(), {rows, columns});
  builder_.emit(OpCode::Copy, {tile.value, own_view(own, sizes)});
}

// In rows of chunks, where they are wide enough.
void Body::load_own_rows() {
  if (scope_.owned.empty()) return;
  const AtomicTensor own = random_.pick(scope_.owned);
  const int64_t rows = random_.between(1, own.rows), width = own.tensor.shape.back();
  const int64_t chunk = chunk_of(own.tensor.dtype);
  const bool chunks = width >= chunk && random_.chance(80);
  const int64_t columns = chunks ? width / chunk * chunk : random_.between(1, width);
  TileInfo tile = make_tile(chunks ? Space::Shared : any_space(), own.tensor.dtype, {rows, columns},
                            own.tensor.range);
  Shape sizes(own.start.size() - 1, 1);
  sizes.insert(sizes.end(), {rows, columns});
  builder_.emit(OpCode::Copy, {own_view(own, sizes), tile.value});
  scope_.tiles.push_back(tile);
}

Value Body::own_view(const AtomicTensor& own, const Shape& sizes) {
  const int64_t rows = sizes[sizes.size() - 2], columns = sizes.back();
  std::vector<Value> at = own.start;
  Value moved = views_.traced(0, own.rows - rows);
  at.back() = builder_.binary(OpCode::Add, at.back(), moved);
  at.push_back(random_.chance(70) ? i32(0) : views_.small(0, own.tensor.shape.back() - columns));
  return builder_.slice(own.tensor.value, at, sizes);
}

}  // namespace kiln::differential
