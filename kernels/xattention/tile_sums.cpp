#include "kernels/xattention/tile_sums.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int64_t kLeast = 8;  // columns of a gemm's result

}  // namespace

TileSums::Kept TileSums::keep(int64_t tile, int64_t block, const Expr& places, const Expr& tiles) {
  return {workspace("parts", F32, {places, tile, tiles * (tile / block)}),
          workspace("tops", F32, {places, tile, tiles})};
}

TileSums::TileSums(const Kept& kept, int64_t tile, int64_t block, const Expr& scale,
                   const Expr& place)
    : kept_(kept),
      tile_(tile),
      block_(block),
      blocks_(tile / block),
      scale_(scale),
      place_(place),
      softmax_(online_softmax(tile, scale)),
      which_(alloc_shared({tile, std::max(blocks_, kLeast)}, F16)),
      weights_(alloc_fragment({tile, tile}, F32)),
      rounded_(alloc_fragment({tile, tile}, F16)),
      rest_(alloc_fragment({tile, tile}, F16)),
      sums_(alloc_fragment({tile, std::max(blocks_, kLeast)}, F32)) {
  for (auto [j, n] : parallel(tile, std::max(blocks_, kLeast)))
    which_(j, n) = select(j / block_ == n, 1.f, 0.f);
}

// A row's sum over a block is a product with the block's columns, 0 or 1, which the tensor cores
// add up in f32: of the weights as f16, and of what rounding them left.
void TileSums::observe(const Expr& column, const Tile& scores) {
  softmax_.step(scores, weights_);
  for (auto [i, j] : parallel(tile_, tile_)) {
    const Expr weight = weights_(i, j), rounded = cast(weight, F16);
    rounded_(i, j) = rounded;
    rest_(i, j) = cast(weight - cast(rounded, F32), F16);
  }
  gemm(rounded_, which_, sums_, {.clear = true, .policy = FullRow});
  gemm(rest_, which_, sums_, {.policy = FullRow});
  const View parts = kept_.parts(place_, all, span(column * blocks_, blocks_));
  blocks_ < kLeast ? copy(sums_(all, span(0, blocks_)), parts) : copy(sums_, parts);
  for (auto i : parallel(tile_)) kept_.tops(place_, i, column) = softmax_.maximum()(i);
}

int64_t TileSums::together(int64_t tile, int64_t block) {
  constexpr int64_t kColumns = 64;
  return std::max<int64_t>(1, kColumns / (tile / block));
}

void TileSums::finish(const Expr& tiles, const Store& store) const {
  const int64_t count = together(tile_, block_), columns = count * blocks_;
  Tile factors = alloc_shared({tile_, count}, F32), tops = alloc_fragment({tile_, count}, F32);
  Tile parts = alloc_fragment({tile_, columns}, F32),
       weighted = alloc_shared({tile_, columns}, F32);
  Tile sums = alloc_fragment({blocks_, columns}, F32);
  for (auto chunk : serial(ceildiv(tiles, count))) {
    copy(kept_.tops(place_, all, span(chunk * count, count)), tops);
    for (auto [i, n] : parallel(tile_, count)) {
      const Expr seen = softmax_.sum()(i) > 0.f && chunk * count + n < tiles;
      factors(i, n) =
          select(seen, exp((tops(i, n) - softmax_.maximum()(i)) * scale_) / softmax_.sum()(i), 0.f);
    }
    copy(kept_.parts(place_, all, span(chunk * columns, columns)), parts);
    for (auto [i, j] : parallel(tile_, columns)) {
      const Expr factor = factors(i, j / blocks_);
      weighted(i, j) = select(factor == 0.f, 0.f, parts(i, j) * factor);
    }
    reduce_sum(reshape(weighted, {blocks_, block_, columns}), sums, 1);
    store(sums, chunk * columns);
  }
}

}  // namespace kiln
