// A block of threads has a tile of rows of one head.
#include "dsl/dsl.h"
#include "kernels/softmax_block_sum/block_sums.h"
#include "kernels/softmax_block_sum/softmax_block_sum.h"

namespace kiln {

Kernel softmax_block_sum_kernel(const BlockSumConfig& config) {
  const BlockSumConfig c = validated(config);
  constexpr int64_t kTile = 64;
  const int64_t blocks = kTile / c.block;  // of a tile
  return trace("softmax_block_sum", {.fast_math = true}, [&] {
    Dim batch = dim("batch"), heads = dim("heads"), rows = dim("rows"), cols = dim("cols");
    Tensor scores = input("scores", c.dtype, {batch, heads, rows, cols});
    Tensor first = input("first", I32, {batch});
    Tensor real_q = input("real_q", I32, {batch}), real_k = input("real_k", I32, {batch});
    Tensor out =
        output("sums", F32, {batch, heads, ceildiv(rows, c.block), ceildiv(cols, c.block)});
    auto scale = param("scale", F32);
    const auto grid = launch({ceildiv(rows, kTile), heads, batch}, {.threads = 512});
    const Expr row = grid[0] * kTile;
    const Expr &h = grid[1], &b = grid[2];
    const Expr there = min(max(real_k(b), 0), cols);
    const auto seen = [&](const Expr& r) -> Expr {  // of the row r
      const Expr there_for_it = c.causal ? max(min(there, first(b) + r + 1), 0) : there;
      return select(r < rows && first(b) + r < real_q(b), there_for_it, 0);
    };
    const Expr most = c.causal ? max(min(there, first(b) + min(row + kTile, rows)), 0) : there;
    BlockSums sums(kTile, c.block, scale, [&](const Expr& i) { return seen(row + i); });
    Tile s = alloc_fragment({kTile, kTile}, F32);
    const auto each_tile = [&](const auto& step) {
      for (auto tile : pipelined(ceildiv(most, kTile))) {
        copy(scores(b, h, span(row, kTile), span(tile * kTile, kTile)), s);
        step(tile);
      }
    };
    const auto store = [&](const Tile& tile_sums, const Expr& tile) {
      copy(tile_sums, out(b, h, span(grid[0] * blocks, blocks), span(tile * blocks, blocks)));
    };
    each_tile([&](const Expr& tile) { sums.observe(tile * kTile, s); });
    each_tile([&](const Expr& tile) { store(sums.sum(tile * kTile, s), tile); });
    Tile nothing = alloc_fragment({blocks, blocks}, F32);
    clear(nothing);
    for (auto tile : pipelined(ceildiv(most, kTile), ceildiv(cols, kTile))) store(nothing, tile);
  });
}

}  // namespace kiln
