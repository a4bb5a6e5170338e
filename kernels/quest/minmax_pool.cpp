// A block of threads pools one block of keys of one head.
#include <algorithm>

#include "dsl/dsl.h"
#include "kernels/quest/quest.h"

namespace kiln {

Kernel minmax_pool_kernel(const QuestConfig& config) {
  const QuestConfig c = validated(config);
  constexpr int64_t kMostKeys = 16;  // in registers at once
  const int64_t rows = std::min(c.block, kMostKeys);
  return trace("minmax_pool", [&] {
    Dim batch = dim("batch"), room = dim("room"), heads_kv = dim("heads_kv");
    Tensor k = input("k", c.dtype, {batch, room, heads_kv, c.head_dim});
    Tensor lengths = input("lengths", I32, {batch});
    const auto blocks = ceildiv(room, c.block);
    Tensor kmin = output("kmin", c.dtype, {batch, blocks, heads_kv, c.head_dim});
    Tensor kmax = output("kmax", c.dtype, {batch, blocks, heads_kv, c.head_dim});

    const auto grid = launch({blocks, heads_kv, batch});
    const Expr &block = grid[0], &h = grid[1], &b = grid[2];
    const auto first = block * c.block;
    const auto end = min(min(lengths(b), room), first + c.block);

    Tile low = alloc_fragment({rows, c.head_dim}, F32),
         high = alloc_fragment({rows, c.head_dim}, F32);
    Tile least = alloc_fragment({c.head_dim}, F32), most = alloc_fragment({c.head_dim}, F32);
    fill(least, infinity(F32));
    fill(most, -infinity(F32));
    for (auto part : pipelined(max(ceildiv(end - first, rows), 0))) {
      const auto at = first + part * rows;
      copy(k(b, span(at, rows), h, all), low);
      for (auto [i, d] : parallel(rows, c.head_dim)) {
        high(i, d) = select(at + i < end, low(i, d), -infinity(F32));
        low(i, d) = select(at + i < end, low(i, d), infinity(F32));
      }
      reduce_min(low, least, 0, false);
      reduce_max(high, most, 0, false);
    }
    when(first >= end, [&] {
      clear(least);
      clear(most);
    });
    copy(least, kmin(b, block, h, all));
    copy(most, kmax(b, block, h, all));
  });
}

}  // namespace kiln
