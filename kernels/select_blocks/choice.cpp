// A threshold's choice is a prefix of the blocks in order of score, the shortest whose mass is
// enough. It is found without sorting, so that rows may be of any length: by the largest number v
// such that the blocks of at least v are enough, bit by bit from the highest; and how many of those
// that are equal to v it takes. A choice of k blocks is the same with a mass of 1 each. Masses are
// added in f64, so that the order of adding does not matter.
#include "kernels/select_blocks/choice.h"

namespace kiln {
namespace {

constexpr int64_t kColumns = 256;  // looked at together

Expr i32(int64_t value) {
  return cast(value, I32);
}
Expr f64(double value) {
  return cast(value, F64);
}

// Stores a row's choice, chunk by chunk: the mask, ranks among the chosen, and the count.
class Emitter {
 public:
  explicit Emitter(const ChosenRow& out) : out_(out) {}

  // body(first column, chosen): fills `chosen` (fragment i32, 0 or 1) for each chunk of columns.
  template <class Body>
  void each_chunk(const Body& body) {
    for (auto chunk : serial(ceildiv(out_.columns, kColumns))) {
      const Expr first = chunk * kColumns;
      body(first, chosen_);
      if (out_.store_mask)
        for (auto i : parallel(kColumns)) out_.store_mask(first + i, chosen_(i) != 0);
      if (!out_.store_index) continue;
      cumsum(chosen_, ranks_);
      const Expr before = count_.read();
      for (auto i : parallel(kColumns))
        out_.store_index(select(chosen_(i) != 0, before + ranks_(i) - 1, -1), first + i);
      reduce_sum(chosen_, sum_);
      copy(sum_, total_);
      count_ += total_(0);
    }
    if (!out_.store_index) return;
    const Expr count = count_.read();
    out_.store_count(count);
    for (auto chunk : serial(count / kColumns, ceildiv(out_.columns, kColumns)))
      for (auto i : parallel(kColumns)) {
        auto place = chunk * kColumns + i;
        out_.store_index(select(place >= count, place, -1), i32(-1));
      }
  }

 private:
  const ChosenRow& out_;
  Var count_ = 0;
  Tile chosen_ = alloc_fragment({kColumns}, I32), ranks_ = alloc_fragment({kColumns}, I32);
  Tile sum_ = alloc_fragment({1}, I32), total_ = alloc_shared({1}, I32);
};

// The numbers of f32 in their order, from 0 on: those that are not negative have the highest bit.
class OrderedNumbers {
 public:
  Expr operator()(const Expr& place) const {
    const Expr highest = cast(1, U32) << 31;
    words_(0) = select((place & highest) != 0, place ^ highest, ~place);
    return numbers_(0);
  }

 private:
  Tile words_ = alloc_shared({1}, U32), numbers_ = view(words_, {1}, F32);
};

class Choice {
 public:
  Choice(const SelectConfig& config, const ScoreRow& row) : c_(config), row_(row) {}

  void choose() {
    const Expr forced_mass = forced_sum(true), forced_count = forced_sum(false);
    const Expr others = sum(true, [&](const Expr& s) { return s > lowest(); });
    if (c_.by == SelectBy::TopK) {
      cut(false, cast(row_.amount, F64) - forced_count, others);
      return;
    }
    // All of a row's mass is all that have some: no rounding leaves the last ones out.
    const Expr share = cast(row_.amount, F64);
    const Expr wanted = select(share >= 1.0, infinity(F64), share * (forced_mass + others));
    cut(true, wanted - forced_mass, others);
    if (c_.ref_compat && c_.causal) add_surplus(wanted, forced_count);
  }

  void emit(const ChosenRow& out) {
    Tile ties = alloc_fragment({kColumns}, I32), ranks = alloc_fragment({kColumns}, I32);
    Tile tied = alloc_fragment({1}, I32), tied_there = alloc_shared({1}, I32);
    Var passed = 0;
    Emitter(out).each_chunk([&](const Expr& first, const Tile& chosen) {
      const Expr before = passed.read(), cut = cut_.read(), taken = taken_.read();
      for (auto i : parallel(kColumns))
        ties(i) = select(is_other(first + i) && score(first + i) == cut, 1, 0);
      cumsum(ties, ranks);
      for (auto i : parallel(kColumns)) {
        auto column = first + i;
        auto is = is_other(column) &&
                  (score(column) > cut || (score(column) == cut && before + ranks(i) <= taken));
        chosen(i) = select((is || is_added(column)) && column < out.columns, 1, 0);
      }
      reduce_sum(ties, tied);
      copy(tied, tied_there);
      passed += tied_there(0);
    });
  }

 private:
  bool by_mass() const { return c_.by == SelectBy::Threshold; }
  // Scores above it may be chosen.
  Expr lowest() const { return by_mass() ? cast(0.f, F32) : -infinity(F32); }

  // NaN is the lowest there is, a negative mass is none.
  Expr score(const Expr& column) const {
    const Expr given = row_.score(column);
    return by_mass() ? max(given, 0.f) : select(given == given, given, -infinity(F32));
  }

  Expr is_sink(const Expr& column, bool asked) const { return column == 0 && asked; }
  Expr is_diagonal(const Expr& column, bool asked) const {
    return (column == row_.low_diagonal || column == row_.diagonal) && asked;
  }
  Expr is_visible(const Expr& column) const { return column >= 0 && column < row_.visible; }

  // The public code's forced sink is lost where its chunk begins at column 0: the diagonal of
  // row 0 is the sink itself.
  Expr is_forced(const Expr& column) const {
    const Expr sink = is_sink(column, c_.causal && c_.force_sink) &&
                      (c_.ref_compat ? !row_.in_first_chunk : column == column);
    return is_visible(column) && (sink || is_diagonal(column, c_.causal && c_.force_diag));
  }
  Expr is_other(const Expr& column) const { return is_visible(column) && !is_forced(column); }
  // In the mask whatever the cut is.
  Expr is_added(const Expr& column) const {
    const bool whole_row = c_.ref_compat && c_.keep_sink;
    const Expr kept = is_visible(column) && (is_sink(column, c_.ref_compat || c_.keep_sink) ||
                                             is_diagonal(column, c_.keep_recent));
    return kept || (row_.is_first && whole_row) || is_forced(column);
  }

  // Of the forced columns, which are these three at most: their mass or number, in f64.
  Expr forced_sum(bool mass) const {
    const auto of = [&](const Expr& column, const Expr& counts) {
      return select(counts && is_forced(column), mass ? cast(score(column), F64) : f64(1), f64(0));
    };
    const Expr low = row_.low_diagonal, high = row_.diagonal;
    return of(i32(0), low != 0 && high != 0) + of(low, low != high) + of(high, high == high);
  }

  // Of the columns that are not forced and whose score is as asked: their mass or number.
  template <class Condition>
  Expr sum(bool mass, const Condition& condition) {
    clear(parts_);
    for (auto chunk : serial(ceildiv(row_.visible, kColumns)))
      for (auto i : parallel(kColumns)) {
        auto column = chunk * kColumns + i;
        auto s = score(column);
        auto weight = mass && by_mass() ? cast(s, F64) : f64(1);
        parts_(i) += select(is_other(column) && condition(s), weight, f64(0));
      }
    reduce_sum(parts_, total_);
    copy(total_, total_there_);
    return total_there_(0);
  }

  // The shortest prefix of the others, which have `all` above the lowest, with at least `wanted`.
  void cut(bool mass, const Expr& wanted, const Expr& all) {
    taken_ = 0;
    cut_ = infinity(F32);
    when(wanted > 0.0, [&] {
      when(
          all <= wanted, [&] { cut_ = lowest(); }, [&] { search(mass, wanted); });
    });
  }

  void search(bool mass, const Expr& wanted) {
    const OrderedNumbers number;
    Var place = cast(0, U32);
    for (auto step : serial(32)) {
      const Expr higher = place.read() | (cast(1, U32) << cast(31 - step, U32));
      const Expr least = number(higher);
      const Expr there = sum(mass, [&](const Expr& s) { return s >= least; });
      place = select(there >= wanted, higher, place.read());
    }
    const Expr least = number(place.read());
    const Expr above = sum(mass, [&](const Expr& s) { return s > least; });
    const Expr each = mass && by_mass() ? cast(least, F64) : f64(1);
    cut_ = least;
    taken_ = cast(ceil((wanted - above) / each), I32);
  }

  // The public code's list of sums is made for two forced blocks: with one, every other block is
  // compared with the sum that belongs to the one before it.
  void add_surplus(const Expr& wanted, const Expr& forced_count) {
    when(forced_count == 1.0 && wanted > 0.0, [&] {
      const Expr old = cut_.read();
      const Expr above = sum(false, [&](const Expr& s) { return s > old; });
      const Expr all = sum(false, [&](const Expr& s) { return s >= 0.f; });
      const Expr more = above + cast(taken_.read(), F64) + 1.0;
      taken_ = 0;
      when(
          all <= more, [&] { cut_ = -1.f; }, [&] { search(false, more); });
    });
  }

  const SelectConfig& c_;
  const ScoreRow& row_;
  Tile parts_ = alloc_fragment({kColumns}, F64), total_ = alloc_fragment({1}, F64);
  Tile total_there_ = alloc_shared({1}, F64);
  Var cut_ = infinity(F32);  // the others above it are chosen,
  Var taken_ = 0;            // and as many of those equal to it
};

}  // namespace

void choose_blocks(const SelectConfig& config, const ScoreRow& row, const ChosenRow& out) {
  Choice choice(config, row);
  choice.choose();
  choice.emit(out);
}

void choose_by_votes(HeadReduce reduce, const Expr& members,
                     const std::function<Expr(const Expr& member, const Expr& column)>& has,
                     const ChosenRow& out) {
  const Expr least = reduce == HeadReduce::Any ? i32(1) : members / 2 + 1;
  Tile votes = alloc_fragment({kColumns}, I32);
  Emitter(out).each_chunk([&](const Expr& first, const Tile& chosen) {
    clear(votes);
    for (auto member : serial(members))
      for (auto i : parallel(kColumns)) votes(i) += select(has(member, first + i), 1, 0);
    for (auto i : parallel(kColumns)) chosen(i) = select(votes(i) >= least, 1, 0);
  });
}

}  // namespace kiln
