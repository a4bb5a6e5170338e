// A token's importances are a row of a product with the weights; means are taken one by one.
#include "kernels/infllmv2/importance.h"

#include "kernels/infllmv2/packed_tiles.h"

namespace kiln {
namespace {

// Of a step: 64, or as many of the head's as divide it.
int64_t columns_of(int64_t head_dim) {
  int64_t columns = 64;
  while (head_dim % columns) columns -= 16;
  return columns;
}

// ln(1 + exp x): of large x, x itself; of what is small beside 1 the series, since the sum with 1
// would lose it.
Expr softplus(const Expr& x) {
  const Expr e = exp(select(x < 0.f, x, -x));
  const Expr series = e * (1.f - e * (0.5f - e * (1.f / 3 - e * 0.25f)));
  return max(x, 0.f) + select(e < 0.03f, series, log(e + 1.f));
}

}  // namespace

Kernel importance_kernel(const ImportanceConfig& config) {
  const ImportanceConfig c = validated(config);
  constexpr int64_t kTokens = 64;  // of a tile
  const int64_t heads = (c.heads_kv + 15) / 16 * 16, columns = columns_of(c.head_dim);
  return trace("token_importance", [&] {
    // Not a constant here, so that a tile may reach beyond them: there are zeros.
    Dim tokens = dim("tokens"), results = dim("heads_kv");
    Tensor v = input("v", c.dtype, {tokens, c.heads_kv, c.head_dim});
    Tensor weights = input("weights", c.dtype, {results, c.heads_kv, c.head_dim});
    Tensor amplitude = input("amplitude", F32, {c.heads_kv});
    std::optional<Tensor> bias;
    if (c.bias) bias.emplace(input("bias", F32, {c.heads_kv}));
    Tensor importance = output("importance", F32, {tokens, results});

    const auto grid = launch({ceildiv(tokens, kTokens)});
    const Span rows = span(grid[0] * kTokens, kTokens);
    Tile values = alloc_shared({kTokens, columns}, c.dtype);
    Tile factors = alloc_shared({heads, columns}, c.dtype);
    Tile sum = alloc_fragment({kTokens, heads}, F32);
    clear(sum);
    const int64_t parts = c.head_dim / columns;
    const Span all_heads = span(0, heads);
    for (auto step : pipelined(c.heads_kv * parts)) {
      const Expr head = step / parts;
      const Span part = span(step % parts * columns, columns);
      copy(v(rows, head, part), values);
      copy(weights(all_heads, head, part), factors);
      gemm(values, factors, sum, {.transpose_b = true});
    }
    for (auto [i, h] : parallel(kTokens, heads)) {
      auto there = select(h < c.heads_kv, h, -1);
      const Expr x = c.bias ? sum(i, h) + (*bias)(there) : Expr(sum(i, h));
      sum(i, h) = amplitude(there) * softplus(x);
    }
    copy(sum, importance(rows, all_heads));
  });
}

Kernel nosa_mean_pool_kernel(const NosaMeanConfig& config) {
  const NosaMeanConfig c = validated(config);
  constexpr int64_t kWindows = 256;  // of a block of threads
  return trace("nosa_mean_pool", [&] {
    Dim ends = dim("ends"), tokens = dim("tokens"), heads_kv = dim("heads_kv");
    Dim windows = dim("windows");
    Tensor importance = input("importance", F32, {tokens, heads_kv});
    Tensor cu_seqlens = input("cu_seqlens", I32, {ends});
    Tensor means = output("means", F32, {heads_kv, ends - 1, windows});

    const auto grid = launch({ceildiv(windows, kWindows), heads_kv, ends - 1});
    const Expr first = grid[0] * kWindows;
    const Expr &h = grid[1], &b = grid[2];
    const infllmv2::Packed sequence(cu_seqlens, b, tokens);
    Tile sum = alloc_fragment({kWindows}, F32);
    clear(sum);
    for (auto token : serial(c.window))
      for (auto i : parallel(kWindows)) {
        auto begin = (first + i) * c.stride;
        auto is_whole = begin + c.window <= sequence.length;
        sum(i) += importance(select(is_whole, sequence.begin + begin + token, -1), h);
      }
    for (auto i : parallel(kWindows)) sum(i) = sum(i) / static_cast<float>(c.window);
    copy(sum, means(h, b, span(first, kWindows)));
  });
}

}  // namespace kiln
