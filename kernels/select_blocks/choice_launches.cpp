#include <limits>
#include <vector>

#include "kernels/select_blocks/choice.h"

namespace kiln {
namespace {

constexpr int kThreads = 128;

Tensor kept_in(ChoiceInterface::Kept kept, const char* name, DType dtype,
               const std::vector<Arg>& extents) {
  if (kept == ChoiceInterface::Kept::Workspaces) return workspace(name, dtype, extents);
  if (kept == ChoiceInterface::Kept::Inouts) return inout(name, dtype, extents);
  return output(name, dtype, extents);
}

}  // namespace

ChoiceInterface::ChoiceInterface(const SelectConfig& config, const Expr& batch, const Expr& heads,
                                 const Expr& rows, const Expr& cols, Kept kept,
                                 const std::optional<Expr>& out_heads)
    : c_(config),
      means_(config.reduce == HeadReduce::Mean),
      votes_(config.reduce == HeadReduce::Any || config.reduce == HeadReduce::Majority),
      batch_(batch),
      heads_(heads),
      out_heads_(!means_ && !votes_ ? heads
                 : out_heads        ? *out_heads
                                    : Expr(dim("out_heads"))),
      rows_(rows),
      cols_(cols) {
  const bool by_mass = c_.by == SelectBy::Threshold;
  const DType amounts = by_mass ? F32 : I32;
  if (c_.per_head)
    per_head_.emplace(input("thresholds", amounts, {votes_ ? heads_ : out_heads_}));
  else
    amount_.emplace(param(by_mass ? "threshold" : "top_k", amounts));
  if (kept != Kept::Workspaces)
    mask_.emplace(kept_in(kept, "mask", Bool, {batch, out_heads_, rows, cols}));
  if (c_.list) {
    counts_.emplace(kept_in(kept, "counts", I32, {batch, out_heads_, rows}));
    indices_.emplace(kept_in(kept, "indices", I32, {batch, out_heads_, rows, cols}));
  }
  if (means_) mean_scores_.emplace(workspace("mean_scores", F32, {batch, out_heads_, rows, cols}));
  if (votes_) ballots_.emplace(workspace("ballots", Bool, {batch, heads, rows, cols}));
}

void ChoiceInterface::launches(const Tensor& scores, const PlaceOf& place) const {
  if (means_) take_means(scores);
  choose(means_ ? *mean_scores_ : scores, place);
  if (votes_) count_votes();
}

ChosenRow ChoiceInterface::stored_in(const Tensor& mask, const Expr& b, const Expr& h,
                                     const Expr& row) const {
  const auto store = [=](const Expr& column, const Expr& chosen) {
    mask(b, h, row, column) = chosen;
  };
  return {cols_, store, {}, {}};
}

ChosenRow ChoiceInterface::result(const Expr& b, const Expr& h, const Expr& row) const {
  ChosenRow out = mask_ ? stored_in(*mask_, b, h, row) : ChosenRow{cols_, {}, {}, {}};
  if (!c_.list) return out;
  out.store_index = [=, this](const Expr& place, const Expr& column) {
    (*indices_)(b, h, row, place) = column;
  };
  out.store_count = [=, this](const Expr& count) { (*counts_)(b, h, row) = count; };
  return out;
}

void ChoiceInterface::take_means(const Tensor& scores) const {
  constexpr int64_t kColumns = 256;
  const auto grid = launch({rows_, out_heads_, batch_}, {.threads = kThreads});
  const Expr &row = grid[0], &h = grid[1], &b = grid[2];
  Tile sum = alloc_fragment({kColumns}, F32);
  for (auto chunk : serial(ceildiv(cols_, kColumns))) {
    clear(sum);
    for (auto member : serial(group()))
      for (auto i : parallel(kColumns))
        sum(i) += scores(b, h * group() + member, row, chunk * kColumns + i);
    for (auto i : parallel(kColumns))
      (*mean_scores_)(b, h, row, chunk * kColumns + i) = sum(i) / cast(group(), F32);
  }
}

// The threshold, or k, by which a row of equal scores is chosen whole.
Expr ChoiceInterface::everything() const {
  if (c_.by == SelectBy::Threshold) return cast(1, F32);
  return cast(std::numeric_limits<int32_t>::max(), I32);
}

void ChoiceInterface::choose(const Tensor& scores, const PlaceOf& place_of) const {
  const auto grid = launch({rows_, votes_ ? heads_ : out_heads_, batch_}, {.threads = kThreads});
  const Expr &row = grid[0], &h = grid[1], &b = grid[2];
  const Place place = place_of(b, row);
  const auto score = [&](const Expr& column) -> Expr {
    const Expr given = scores(b, h, row, column);
    return place.takes_all ? select(*place.takes_all, 1.f, given) : given;
  };
  const Expr amount = c_.per_head ? Expr((*per_head_)(h)) : *amount_;
  const ScoreRow from{score,
                      place.visible,
                      place.low_diagonal,
                      place.diagonal,
                      place.takes_all ? select(*place.takes_all, everything(), amount) : amount,
                      place.is_first,
                      place.in_first_chunk};
  choose_blocks(c_, from, votes_ ? stored_in(*ballots_, b, h, row) : result(b, h, row));
}

void ChoiceInterface::count_votes() const {
  const auto grid = launch({rows_, out_heads_, batch_}, {.threads = kThreads});
  const Expr &row = grid[0], &h = grid[1], &b = grid[2];
  const auto has = [&](const Expr& member, const Expr& column) -> Expr {
    return (*ballots_)(b, h * group() + member, row, column);
  };
  choose_by_votes(c_.reduce, group(), has, result(b, h, row));
}

}  // namespace kiln
