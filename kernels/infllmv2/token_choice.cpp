// A block of threads chooses for one token and kv head, as select_blocks does for a row.
#include "kernels/infllmv2/token_choice.h"

#include "kernels/infllmv2/packed_tiles.h"
#include "kernels/select_blocks/choice.h"

namespace kiln {
namespace {

using infllmv2::Packed;

constexpr int64_t kMostBlocks = TokenChoiceConfig::kMostBlocks;
constexpr int64_t kColumns = 256;  // looked at together

SelectConfig best_of_row(bool list) {
  SelectConfig config;
  config.by = SelectBy::TopK;
  config.causal = config.force_sink = config.force_diag = false;  // forced ones score +inf
  config.list = list;
  return config;
}

ScoreRow row_of(const Expr& visible, const Expr& amount,
                std::function<Expr(const Expr& column)> score) {
  const Expr own = visible - 1, no = visible < 0;
  return {std::move(score), visible, own, own, amount, no, no};
}

// The largest importance of the windows that overlap each block, as max_pool takes it.
void pool_importance(const TokenChoiceConfig& c, const Tensor& importance, const Expr& h,
                     const Expr& b, const Expr& windows, const Expr& visible, const Tile& pooled) {
  const int64_t ratio = c.block / c.stride;
  Tile best = alloc_fragment({kColumns}, F32);
  for (auto chunk : serial(ceildiv(visible, kColumns))) {
    fill(best, -infinity(F32));
    for (auto step : serial(ratio + 1))
      for (auto i : parallel(kColumns)) {
        auto window = (chunk * kColumns + i) * ratio - 1 + step;
        auto is = window >= 0 && window < windows;
        auto value = importance(h, b, select(is, window, -1));
        best(i) = max(best(i), select(is && value == value, value, -infinity(F32)));
      }
    for (auto i : parallel(kColumns)) pooled(chunk * kColumns + i) = best(i);
  }
}

}  // namespace

Kernel token_choice_kernel(const TokenChoiceConfig& config) {
  const TokenChoiceConfig c = validated(config);
  return trace("token_choice", [&] {
    Dim ends = dim("ends"), tokens = dim("tokens"), heads_kv = dim("heads_kv"), seq = dim("seq");
    Dim blocks = dim("blocks");
    Tensor scores = input("scores", F32, {heads_kv, tokens, blocks});
    Tensor cu_seqlens = input("cu_seqlens", I32, {ends});
    Tensor cache_lens = input("cache_lens", I32, {ends - 1});
    std::optional<Tensor> importance, cu_windows;
    std::optional<Dim> windows;
    if (c.nosa) {
      windows.emplace("windows");
      importance.emplace(input("importance", F32, {heads_kv, ends - 1, *windows}));
      cu_windows.emplace(input("cu_windows", I32, {ends}));
    }
    Tensor indices = output("indices", I32, {heads_kv, tokens, c.topk});

    const auto grid = launch({seq, heads_kv, ends - 1});
    const Expr &i = grid[0], &h = grid[1], &b = grid[2];
    const Packed queries(cu_seqlens, b, seq);
    when(i < queries.length, [&] {
      const Expr token = queries.begin + i;
      const Expr own = floordiv(max(cache_lens(b), 0) + i, c.block);
      const Expr visible = min(own + 1, c.nosa ? min(blocks, kMostBlocks) : Expr(blocks));
      const auto score = [&](const Expr& column) -> Expr { return scores(h, token, column); };
      const ChosenRow list{
          max(blocks, c.topk),
          {},
          [&](const Expr& place, const Expr& column) { indices(h, token, place) = column; },
          [](const Expr&) {}};
      const Expr topk = cast(c.topk, I32);
      if (!c.nosa) return choose_blocks(best_of_row(true), row_of(visible, topk, score), list);

      Tile first = alloc_shared({kMostBlocks}, Bool), pooled = alloc_shared({kMostBlocks}, F32);
      pool_importance(c, *importance, h, b, Packed(*cu_windows, b, *windows).length, visible,
                      pooled);
      const ChosenRow stage{
          visible, [&](const Expr& column, const Expr& chosen) { first(column) = chosen; }, {}, {}};
      choose_blocks(best_of_row(false),
                    row_of(visible, cast(c.init + c.local + c.select, I32), score), stage);
      const auto second = [&](const Expr& column) -> Expr {
        const Expr at = select(column < visible, column, -1);  // behind it nothing was written
        return select(first(at), infinity(F32), pooled(at));
      };
      choose_blocks(best_of_row(true), row_of(visible, topk, second), list);
    });
  });
}

}  // namespace kiln
