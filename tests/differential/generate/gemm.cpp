// Gemms of all dtypes and policies, of shapes that the instructions fit and of others.
#include "tests/differential/generate/body.h"

namespace kiln::differential {

void Body::gemm() {
  const bool integers = !is_small() || random_.chance(20);
  const DType dtype = integers ? I32 : random_.chance(15) ? F64 : F32;
  Shape extents = shape(2);
  if (random_.chance(45))  // as mma wants them, some with a rest for the warps
    extents = {random_.pick({16, 32, 48, 64}), random_.pick({8, 24, 40, 64, 72, 104})};
  if (random_.chance(10)) extents.insert(extents.begin(), 1);
  TileInfo c = make_tile(Space::Fragment, dtype, extents, Range::Sum);
  const bool clear = random_.chance(40);
  if (!clear) builder_.fill(static_cast<double>(random_.between(0, 3)), c.value);
  gemm_into(c, clear);
  if (random_.chance(15)) gemm_into(c, random_.chance(20));  // two into one fragment
  scope_.tiles.push_back(c);
}

void Body::gemm_into(const TileInfo& c, bool clear) {
  const DType dtype = c.dtype == I32   ? random_.pick({I8, U8})
                      : c.dtype == F64 ? F64
                                       : random_.pick({F16, BF16, F32, E4M3, E5M2});
  const int64_t m = c.shape[c.shape.size() - 2], n = c.shape.back();
  const bool fits = m % 16 == 0 && n % 8 == 0;
  const int64_t k = random_.chance(5)                ? random_.between(64, 150)
                    : random_.chance(2)              ? random_.between(257, 300)
                    : random_.chance(fits ? 85 : 30) ? random_.pick({8, 16, 24, 32, 40, 48})
                                                     : shape(2)[0];
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
  TileInfo tile;
  if (random_.chance(8)) {  // filled as one long row
    tile = make_tile(Space::Shared, dtype, {extents[0] * extents[1]});
    initialise(tile);
    tile.value = builder_.reshape(tile.value, dtype, extents);
    tile.shape = extents;
  } else {
    tile = make_tile(any_space(), dtype, extents);
    initialise(tile);
  }
  if (random_.chance(30)) elementwise({tile});
  return views_.part(tile, wanted, true);
}

}  // namespace kiln::differential
