// The heads of a group and some tokens are the rows of a tile. Its scores are computed twice: for
// the maximum and sum of each row, over the windows that the softmax is of, then for the weights.
#include "kernels/infllmv2/compressed_scores.h"

#include <algorithm>

#include "dsl/dsl.h"

namespace kiln {
namespace {

constexpr int64_t kRows = 64, kCols = 64;  // of a tile

struct Windows {
  Tensor keys, ends;
  int64_t window, stride;
};

// A sequence's windows, and how many of them a query at a position sees.
struct Seen {
  const Windows& windows;
  bool causal;
  Expr begin, count;

  Seen(const Windows& windows, bool causal, const Expr& b)
      : windows(windows),
        causal(causal),
        begin(windows.ends(b)),
        count(max(windows.ends(b + 1) - begin, 0)) {}
  Expr by(const Expr& position) const {
    if (!causal) return count;
    const Expr complete = floordiv(position - (windows.window - 1), windows.stride) + 1;
    return min(max(complete, 0), count);
  }
};

// The rows of a tile: `tokens` queries of one sequence, each with the heads of a kv head.
struct Rows {
  const CompressedConfig& c;
  Expr first, length, history;  // the first token of the tile, of so many
  int64_t tokens;

  Expr token(const Expr& row) const { return first + row / c.group; }
  Expr is_there(const Expr& row) const { return row < tokens * c.group && token(row) < length; }
  Expr seen(const Seen& windows, const Expr& row) const {
    return select(is_there(row), windows.by(token(row) + history), 0);
  }
  // By any row.
  Expr most(const Seen& windows) const {
    const Expr last = min(first + tokens, length) - 1;
    return select(first < length, windows.by(last + history), 0);
  }
};

class Scores {
 public:
  Scores(const CompressedConfig& config, const Tile& q, const Expr& scale, const Expr& kv_head)
      : c_(config), q_(q), scale_(scale), kv_head_(kv_head) {
    fill(top_, -infinity(F32));
    clear(total_);
  }

  // The maximum and sum of each row's softmax.
  void observe(const Rows& rows, const Seen& seen) {
    for (auto i : parallel(kRows)) seen_(i) = rows.seen(seen, i);
    for (auto tile : serial(ceildiv(rows.most(seen), kCols))) {
      compute(seen, tile * kCols);
      copy(top_, old_top_);
      reduce_max(s_, top_, 1, false);
      for (auto [i, j] : parallel(kRows, kCols)) s_(i, j) = weight(s_(i, j), top_(i));
      reduce_sum(s_, tile_total_, 1);
      for (auto i : parallel(kRows))
        total_(i) = total_(i) * weight(old_top_(i), top_(i)) + tile_total_(i);
    }
  }

  // For each tile of columns: store(first column, sums over each token's heads).
  template <class Store>
  void sum(const Rows& rows, const Seen& seen, const Expr& columns, const Store& store) {
    for (auto i : parallel(kRows)) seen_(i) = rows.seen(seen, i);
    const Expr tiles = ceildiv(rows.most(seen), kCols);
    Tile sums = alloc_fragment({rows.tokens, kCols}, F32);
    for (auto tile : serial(tiles)) {
      compute(seen, tile * kCols);
      for (auto [i, j] : parallel(kRows, kCols))
        s_(i, j) = select(total_(i) > 0.f, weight(s_(i, j), top_(i)) / total_(i), 0.f);
      copy(s_, weights_);
      clear(sums);
      for (auto g : serial(c_.group))
        for (auto [t, j] : parallel(rows.tokens, kCols))
          sums(t, j) += weights_(t * c_.group + g, j);
      store(tile * kCols, sums);
    }
    clear(sums);
    for (auto tile : serial(tiles, ceildiv(columns, kCols))) store(tile * kCols, sums);
  }

 private:
  // −inf where a row does not see a window.
  void compute(const Seen& seen, const Expr& first) {
    copy(seen.windows.keys(span(seen.begin + first, kCols), kv_head_, all), keys_);
    gemm(q_, keys_, s_, {.transpose_b = true, .clear = true});
    for (auto [i, j] : parallel(kRows, kCols))
      s_(i, j) = select(first + j < seen_(i), s_(i, j), -infinity(F32));
  }
  // A maximum of −inf (nothing seen so far) is not subtracted: −inf − −inf would be NaN.
  Expr weight(const Expr& score, const Expr& top) const {
    return exp((score - select(top == -infinity(F32), 0.f, top)) * scale_);
  }

  const CompressedConfig& c_;
  const Tile& q_;
  Expr scale_, kv_head_;
  Tile keys_ = alloc_shared({kCols, c_.head_dim}, c_.dtype);
  Tile weights_ = alloc_shared({kRows, kCols}, F32);
  Tile s_ = alloc_fragment({kRows, kCols}, F32), seen_ = alloc_fragment({kRows}, I32);
  Tile top_ = alloc_fragment({kRows}, F32), old_top_ = alloc_fragment({kRows}, F32),
       total_ = alloc_fragment({kRows}, F32), tile_total_ = alloc_fragment({kRows}, F32);
};

}  // namespace

Kernel compressed_scores_kernel(const CompressedConfig& config) {
  const CompressedConfig c = validated(config);
  const int64_t together = std::max<int64_t>(1, kRows / c.group);  // tokens
  return trace("compressed_scores", [&] {
    Dim ends = dim("ends"), tokens = dim("tokens"), heads_kv = dim("heads_kv"), seq = dim("seq");
    Dim windows = dim("windows"), most = dim("most");
    Tensor q = input("q", c.dtype, {tokens, heads_kv * c.group, c.head_dim});
    Tensor cu_seqlens = input("cu_seqlens", I32, {ends});
    Tensor cache_lens = input("cache_lens", I32, {ends - 1});
    const Windows fine{input("keys", c.dtype, {windows, heads_kv, c.head_dim}),
                       input("cu_windows", I32, {ends}), c.window, c.stride};
    std::optional<Windows> coarse;
    if (c.coarse) {
      Dim coarse_windows = dim("coarse_windows");
      coarse.emplace(Windows{input("coarse_keys", c.dtype, {coarse_windows, heads_kv, c.head_dim}),
                             input("cu_coarse", I32, {ends}), c.coarse_window, c.coarse_stride});
    }
    Tensor scores = output("scores", F32, {heads_kv, tokens, most});
    const Expr scale = param("scale", F32);

    const auto grid = launch({ceildiv(seq, together), heads_kv, ends - 1});
    const Expr &h = grid[1], &b = grid[2];
    const Expr begin = cu_seqlens(b);
    const Rows rows{c, grid[0] * together, min(max(cu_seqlens(b + 1) - begin, 0), seq),
                    cache_lens(b), together};
    Tile queries = alloc_shared({kRows, c.head_dim}, c.dtype);
    for (auto [i, d] : parallel(kRows, c.head_dim))
      queries(i, d) =
          q(select(rows.is_there(i), begin + rows.token(i), -1), h * c.group + i % c.group, d);

    Scores tile(c, queries, scale, h);
    const Seen seen(fine, c.causal, b);
    tile.observe(rows, coarse ? Seen(*coarse, c.causal, b) : seen);
    tile.sum(rows, seen, most, [&](const Expr& first, const Tile& sums) {
      for (auto [t, j] : parallel(together, kCols)) {
        auto token = rows.first + t;
        scores(h, select(token < rows.length, begin + token, -1), first + j) = sums(t, j);
      }
    });
  });
}

}  // namespace kiln
