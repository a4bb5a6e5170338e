#include "kernels/xattention/tile_sums.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int64_t kLeast = 8;  // columns of a gemm's result

}  // namespace

int64_t TileSums::Shape::together() const {
  constexpr int64_t kColumns = 32;
  return std::max<int64_t>(1, kColumns / blocks());
}

TileSums::Kept TileSums::keep(const Shape& shape, const Expr& places, const Expr& tiles) {
  return {workspace("parts", F32, {places, shape.rows, tiles * shape.blocks()}),
          workspace("tops", F32, {places, shape.rows, tiles})};
}

TileSums::TileSums(const Kept& kept, const Shape& shape, const Expr& scale, const Expr& place)
    : kept_(kept),
      shape_(shape),
      scale_(scale),
      place_(place),
      softmax_(online_softmax(shape.rows, scale)),
      which_(alloc_shared({shape.columns, std::max(shape.blocks(), kLeast)}, F16)),
      weights_(alloc_fragment({shape.rows, shape.columns}, F32)),
      rounded_(alloc_fragment({shape.rows, shape.columns}, F16)),
      rest_(alloc_fragment({shape.rows, shape.columns}, F16)),
      sums_(alloc_fragment({shape.rows, std::max(shape.blocks(), kLeast)}, F32)) {
  for (auto [j, n] : parallel(shape.columns, std::max(shape.blocks(), kLeast)))
    which_(j, n) = select(j / shape.block == n, 1.f, 0.f);
}

// A row's sum over a block is a product with the block's columns, 0 or 1, which the tensor cores
// add up in f32: of the weights as f16, and of what rounding them left.
void TileSums::observe(const Expr& column, const Tile& scores) {
  softmax_.step(scores, weights_);
  for (auto [i, j] : parallel(shape_.rows, shape_.columns)) {
    const Expr weight = weights_(i, j), rounded = cast(weight, F16);
    rounded_(i, j) = rounded;
    rest_(i, j) = cast(weight - cast(rounded, F32), F16);
  }
  gemm(rounded_, which_, sums_, {.clear = true, .policy = FullRow});
  gemm(rest_, which_, sums_, {.policy = FullRow});
  const int64_t blocks = shape_.blocks();
  const View parts = kept_.parts(place_, all, span(column * blocks, blocks));
  blocks < kLeast ? copy(sums_(all, span(0, blocks)), parts) : copy(sums_, parts);
  for (auto i : parallel(shape_.rows)) kept_.tops(place_, i, column) = softmax_.maximum()(i);
}

void TileSums::finish(const Expr& tiles, const Store& store) const {
  const int64_t count = shape_.together(), blocks = shape_.blocks(), columns = count * blocks;
  const int64_t rows = shape_.rows, row_blocks = rows / shape_.block;
  const Tile& top = softmax_.maximum();
  Tile factors = alloc_shared({rows, count}, F32), tops = alloc_fragment({rows, count}, F32);
  Tile parts = alloc_fragment({rows, columns}, F32);
  const auto each_chunk = [&](const auto& body) {
    for (auto chunk : serial(ceildiv(tiles, count))) {
      copy(kept_.tops(place_, all, span(chunk * count, count)), tops);
      for (auto [i, n] : parallel(rows, count)) {
        const Expr seen = top(i) > -infinity(F32) && chunk * count + n < tiles;
        factors(i, n) = select(seen, exp((tops(i, n) - top(i)) * scale_), 0.f);
      }
      copy(kept_.parts(place_, all, span(chunk * columns, columns)), parts);
      for (auto [i, j] : parallel(rows, columns)) {
        const Expr factor = factors(i, j / blocks);  // 0: nothing was kept there
        parts(i, j) = select(factor == 0.f, 0.f, parts(i, j) * factor);
      }
      body(chunk * columns);
    }
  };
  Tile total = alloc_fragment({rows}, F32);
  clear(total);
  each_chunk([&](const Expr&) { reduce_sum(parts, total, 1, false); });

  Tile weighted = alloc_shared({rows, columns}, F32);
  Tile sums = alloc_fragment({row_blocks, columns}, F32);
  each_chunk([&](const Expr& first) {
    for (auto [i, j] : parallel(rows, columns))
      weighted(i, j) = select(total(i) > 0.f, parts(i, j) / total(i), 0.f);
    reduce_sum(reshape(weighted, {row_blocks, shape_.block, columns}), sums, 1);
    store(sums, first);
  });
}

}  // namespace kiln
