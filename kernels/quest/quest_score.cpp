// A block of threads scores a few blocks of keys for one kv head.
#include "dsl/dsl.h"
#include "kernels/quest/quest.h"

namespace kiln {

Kernel quest_score_kernel(const QuestConfig& config) {
  const QuestConfig c = validated(config);
  constexpr int64_t kTile = 16;
  return trace("quest_score", [&] {
    Dim batch = dim("batch"), heads = dim("heads"), heads_kv = dim("heads_kv");
    Dim blocks = dim("blocks");
    Tensor q = input("q", c.dtype, {batch, heads, c.head_dim});
    Tensor kmin = input("kmin", c.dtype, {batch, blocks, heads_kv, c.head_dim});
    Tensor kmax = input("kmax", c.dtype, {batch, blocks, heads_kv, c.head_dim});
    Tensor lengths = input("lengths", I32, {batch});
    Tensor scores = output("scores", F32, {batch, heads_kv, blocks});
    auto scale = param("scale", F32);
    const auto group = heads / heads_kv;

    const auto grid = launch({ceildiv(blocks, kTile), heads_kv, batch});
    const Expr &h = grid[1], &b = grid[2];
    const auto first = grid[0] * kTile;
    const auto filled = ceildiv(min(lengths(b), blocks * c.block), c.block);

    Tile query = alloc_fragment({c.head_dim}, F32), mean = alloc_fragment({c.head_dim}, F32);
    Tile low = alloc_fragment({kTile, c.head_dim}, F32),
         high = alloc_fragment({kTile, c.head_dim}, F32);
    Tile score = alloc_fragment({kTile}, F32);
    clear(mean);
    for (auto member : serial(group)) {
      copy(q(b, h * group + member, all), query);
      for (auto d : parallel(c.head_dim)) mean(d) += query(d);
    }
    const auto weight = scale / cast(group, F32);
    for (auto d : parallel(c.head_dim)) mean(d) = mean(d) * weight;
    copy(kmin(b, span(first, kTile), h, all), low);
    copy(kmax(b, span(first, kTile), h, all), high);
    for (auto [i, d] : parallel(kTile, c.head_dim))
      low(i, d) = max(mean(d) * low(i, d), mean(d) * high(i, d));
    reduce_sum(low, score, 1);
    for (auto i : parallel(kTile)) {
      auto block = first + i;
      auto chosen = select(block + c.local >= filled, infinity(F32), score(i));
      score(i) = select(block >= filled, -infinity(F32), chosen);
    }
    copy(score, scores(b, h, span(first, kTile)));
  });
}

}  // namespace kiln
