// Programs of both poolings.
#include "kernels/infllmv2/pooling.h"

#include <algorithm>
#include <limits>

#include "kernels/infllmv2/packed_tiles.h"

namespace kiln {
namespace {

using infllmv2::Packed;

constexpr int64_t kSequences = 128;  // whose windows are added up together

Expr i32(int64_t value) {
  return cast(value, I32);
}

Expr windows_of(const MeanPoolConfig& c, const Expr& tokens) {
  return max(floordiv(tokens - c.window, c.stride) + 1, 0);
}

// Windows of the sequences before `end`.
Expr windows_before(const MeanPoolConfig& c, const Tensor& ends, const Expr& end,
                    const Expr& most) {
  Tile windows = alloc_fragment({1, kSequences}, I32), sum = alloc_fragment({1}, I32);
  Tile total = alloc_shared({1}, I32);
  Var before = 0;
  for (auto chunk : serial(ceildiv(end, kSequences))) {
    for (auto [i, j] : parallel(1, kSequences)) {
      auto b = chunk * kSequences + j;
      windows(i, j) = select(b < end, windows_of(c, Packed(ends, b, most).length), 0);
    }
    reduce_sum(windows, sum);
    copy(sum, total);
    before += total(0);
  }
  return before;
}

}  // namespace

Kernel mean_pool_kernel(const MeanPoolConfig& config) {
  const MeanPoolConfig c = validated(config);
  constexpr int64_t kElements = 4096;  // of a tile's sums
  const int64_t rows = std::clamp<int64_t>(kElements / c.head_dim, 1, 16);
  return trace("mean_pool", [&] {
    Dim ends = dim("ends"), tokens = dim("tokens"), heads = dim("heads");
    Dim seq = dim("seq"), windows = dim("windows");
    Tensor x = input("x", c.dtype, {tokens, heads, c.head_dim});
    Tensor cu_seqlens = input("cu_seqlens", I32, {ends});
    Tensor pooled = output("pooled", c.dtype, {windows, heads, c.head_dim});
    Tensor cu_windows = output("cu_windows", I32, {ends});

    const auto grid = launch({max(ceildiv(windows_of(c, seq), rows), 1), heads, ends - 1});
    const Expr first = grid[0] * rows;
    const Expr &h = grid[1], &b = grid[2];
    const Packed sequence(cu_seqlens, b, seq);
    const Expr there = windows_of(c, sequence.length);
    const Expr before = windows_before(c, cu_seqlens, b, seq);
    when(grid[0] == 0 && h == 0, [&] {
      when(b == 0, [&] { cu_windows(0) = 0; });
      cu_windows(b + 1) = before + there;
    });
    Tile sum = alloc_fragment({rows, c.head_dim}, F32);
    clear(sum);
    for (auto token : serial(select(first < there, i32(c.window), 0)))
      for (auto [i, d] : parallel(rows, c.head_dim)) {
        auto at = sequence.begin + (first + i) * c.stride + token;
        sum(i, d) += x(select(first + i < there, at, -1), h, d);
      }
    for (auto [i, d] : parallel(rows, c.head_dim))
      pooled(select(first + i < there, before + first + i, -1), h, d) =
          sum(i, d) / static_cast<float>(c.window);
  });
}

Kernel max_pool_kernel(const MaxPoolConfig& config) {
  const MaxPoolConfig c = validated(config);
  const int64_t ratio = c.block / c.stride;
  constexpr int64_t kTokens = 8, kBlocks = 128;  // of a tile
  return trace("max_pool", [&] {
    Dim ends = dim("ends"), tokens = dim("tokens"), heads_kv = dim("heads_kv"), seq = dim("seq");
    Dim most = dim("most"), blocks = dim("blocks");
    Tensor scores = input("scores", F32, {heads_kv, tokens, most});
    Tensor cu_seqlens = input("cu_seqlens", I32, {ends});
    Tensor cu_windows = input("cu_windows", I32, {ends});
    Tensor cache_lens = input("cache_lens", I32, {ends - 1});
    Tensor pooled = output("pooled", F32, {heads_kv, tokens, blocks});

    const auto grid = launch({ceildiv(seq, kTokens), heads_kv, ends - 1});
    const Expr first = grid[0] * kTokens;
    const Expr &h = grid[1], &b = grid[2];
    const Packed queries(cu_seqlens, b, seq), windows(cu_windows, b, most);
    const Expr history = cache_lens(b);
    Tile best = alloc_fragment({kTokens, kBlocks}, F32);
    for (auto chunk : serial(select(first < queries.length, ceildiv(blocks, kBlocks), 0))) {
      fill(best, -infinity(F32));
      for (auto step : serial(ratio + 1))
        for (auto [i, j] : parallel(kTokens, kBlocks)) {
          auto window = (chunk * kBlocks + j) * ratio - 1 + step;
          auto is = first + i < queries.length && window >= 0 && window < windows.length;
          auto at = select(is, queries.begin + first + i, -1);
          best(i, j) = max(best(i, j), select(is, scores(h, at, window), -infinity(F32)));
        }
      for (auto [i, j] : parallel(kTokens, kBlocks)) {
        auto block = chunk * kBlocks + j, own = (first + i + history) / c.block;
        auto recent = c.local_inclusive ? own <= block + c.local : own < block + c.local;
        auto forced = block < c.init || (own >= block && recent);
        pooled(h, select(first + i < queries.length, queries.begin + first + i, -1), block) =
            select(forced, infinity(F32), best(i, j));
      }
    }
  });
}

}  // namespace kiln
