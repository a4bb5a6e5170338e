// A block of threads chooses one row's blocks. Means of heads' scores are taken by a launch before,
// votes of heads counted by one after.
#include "kernels/select_blocks/choice.h"

namespace kiln {
namespace {

constexpr int kThreads = 128;

struct Interface {
  const SelectConfig& c;
  const bool reduced = c.reduce != HeadReduce::None, means = c.reduce == HeadReduce::Mean;
  const bool votes = c.reduce == HeadReduce::Any || c.reduce == HeadReduce::Majority;
  Dim batch = dim("batch"), heads = dim("heads");
  std::optional<Dim> heads_kv = reduced ? std::optional(dim("heads_kv")) : std::nullopt;
  Dim rows = dim("rows"), cols = dim("cols");
  Expr out_heads = heads_kv ? Expr(*heads_kv) : Expr(heads);
  Expr choosing_heads = votes ? Expr(heads) : out_heads;
  Tensor scores = input("scores", F32, {batch, heads, rows, cols});
  Tensor first = input("first", I32, {batch}), blocks = input("blocks", I32, {batch});
  DType amounts = c.by == SelectBy::Threshold ? F32 : I32;
  std::optional<Tensor> per_head;
  std::optional<Expr> amount;
  Tensor mask = output("mask", Bool, {batch, out_heads, rows, cols});
  std::optional<Tensor> counts, indices, mean_scores, ballots;

  explicit Interface(const SelectConfig& config) : c(config) {
    if (c.per_head)
      per_head.emplace(input("thresholds", amounts, {choosing_heads}));
    else
      amount.emplace(param(c.by == SelectBy::Threshold ? "threshold" : "k", amounts));
    if (c.list) {
      counts.emplace(output("counts", I32, {batch, out_heads, rows}));
      indices.emplace(output("indices", I32, {batch, out_heads, rows, cols}));
    }
    if (means) mean_scores.emplace(workspace("mean_scores", F32, {batch, out_heads, rows, cols}));
    if (votes) ballots.emplace(workspace("ballots", Bool, {batch, heads, rows, cols}));
  }

  Expr group() const { return heads / out_heads; }

  // To `mask` alone.
  ChosenRow masked(const Tensor& mask, const Expr& b, const Expr& h, const Expr& row) const {
    const auto store = [=](const Expr& column, const Expr& chosen) {
      mask(b, h, row, column) = chosen;
    };
    return {cols, store, {}, {}};
  }
  ChosenRow result(const Expr& b, const Expr& h, const Expr& row) const {
    ChosenRow out = masked(mask, b, h, row);
    if (!c.list) return out;
    out.store_index = [=, this](const Expr& place, const Expr& column) {
      (*indices)(b, h, row, place) = column;
    };
    out.store_count = [=, this](const Expr& count) { (*counts)(b, h, row) = count; };
    return out;
  }
};

void take_means(const Interface& t) {
  constexpr int64_t kColumns = 256;
  const auto grid = launch({t.rows, t.out_heads, t.batch}, {.threads = kThreads});
  const Expr &row = grid[0], &h = grid[1], &b = grid[2];
  Tile sum = alloc_fragment({kColumns}, F32);
  for (auto chunk : serial(ceildiv(t.cols, kColumns))) {
    clear(sum);
    for (auto member : serial(t.group()))
      for (auto i : parallel(kColumns))
        sum(i) += t.scores(b, h * t.group() + member, row, chunk * kColumns + i);
    for (auto i : parallel(kColumns))
      (*t.mean_scores)(b, h, row, chunk * kColumns + i) = sum(i) / cast(t.group(), F32);
  }
}

void choose(const Interface& t) {
  const SelectConfig& c = t.c;
  const auto grid = launch({t.rows, t.choosing_heads, t.batch}, {.threads = kThreads});
  const Expr &row = grid[0], &h = grid[1], &b = grid[2];
  const Expr diagonal = t.first(b) + row;
  const Expr there = min(max(t.blocks(b), 0), t.cols);
  const Tensor& from = t.means ? *t.mean_scores : t.scores;
  const auto score = [&](const Expr& column) -> Expr { return from(b, h, row, column); };
  const Expr in_first_chunk =
      t.first(b) == 0 && row > 0 && (c.ref_chunk ? row < c.ref_chunk : row >= 0);
  const ScoreRow scores{
      score,         c.causal ? max(min(there, diagonal + 1), 0) : there, diagonal,
      diagonal,      c.per_head ? Expr((*t.per_head)(h)) : *t.amount,     row == 0,
      in_first_chunk};
  choose_blocks(c, scores, t.votes ? t.masked(*t.ballots, b, h, row) : t.result(b, h, row));
}

void count_votes(const Interface& t) {
  const auto grid = launch({t.rows, t.out_heads, t.batch}, {.threads = kThreads});
  const Expr &row = grid[0], &h = grid[1], &b = grid[2];
  const auto has = [&](const Expr& member, const Expr& column) -> Expr {
    return (*t.ballots)(b, h * t.group() + member, row, column);
  };
  choose_by_votes(t.c.reduce, t.group(), has, t.result(b, h, row));
}

}  // namespace

Kernel select_blocks_kernel(const SelectConfig& config) {
  const SelectConfig c = validated(config);
  return trace("select_blocks", [&] {
    const Interface t(c);
    if (t.means) take_means(t);
    choose(t);
    if (t.votes) count_votes(t);
  });
}

}  // namespace kiln
