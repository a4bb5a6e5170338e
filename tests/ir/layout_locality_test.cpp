#include "ir/layout/locality.h"

#include <chrono>
#include <random>

#include "ir/error.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "tests/ir/layout_checks.h"

using namespace kiln;

namespace {

using Registers = std::optional<std::vector<int>>;

// What the header says, word by word: every register of every thread.
Registers by_search(const Layout& loop, const std::vector<int>& axes, const Layout& fragment) {
  std::vector<int> found(static_cast<size_t>(loop.registers()), -1);
  for (Owner at; at.reg < loop.registers(); ++at.reg)
    for (at.warp = 0; at.warp < loop.warps(); ++at.warp)
      for (at.lane = 0; at.lane < loop.extent(Resource::Lane); ++at.lane) {
        const Coordinate point = loop.coordinate(at);
        Coordinate element;
        for (const int axis : axes)
          element.push_back(axis == kNoAxis ? 0 : point[static_cast<size_t>(axis)]);
        if (!loop.contains(point) || !fragment.contains(element)) continue;
        int mine = -1;
        for (const Owner& owner : fragment.owners(element))
          if (mine < 0 && owner.lane == at.lane && owner.warp == at.warp)
            mine = static_cast<int>(owner.reg);
        int& common = found[static_cast<size_t>(at.reg)];
        if (mine < 0 || (common >= 0 && common != mine)) return std::nullopt;
        common = mine;
      }
  return found;
}

Registers check(const Layout& loop, const std::vector<int>& axes, const Layout& fragment) {
  INFO(str(loop) << "\nreaches " << str(fragment));
  const Registers found = local_registers(loop, axes, fragment);
  CHECK((found == by_search(loop, axes, fragment)));
  return found;
}

// A few repeats of each resource, cropped to the shape; nothing if they break the law of layouts.
std::optional<Layout> try_layout(std::mt19937& random, const Coordinate& shape, int64_t warps) try {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const int rank = static_cast<int>(shape.size());
  const auto axis = [&] { return static_cast<int>(pick(pick(0, 3) ? 0 : kNoAxis, rank - 1)); };
  Layout layout(rank);
  std::vector<int64_t> lanes(5, 2), of_warps;
  for (int64_t rest = warps, factor = 2; rest > 1; ++factor)
    for (; rest % factor == 0; rest /= factor) of_warps.push_back(factor);
  while (!lanes.empty() || !of_warps.empty()) {
    switch (pick(0, 3)) {
      case 0: layout = layout.repeat(Resource::Reg, pick(1, 3), axis()); break;
      case 1:
      case 2:
        if (lanes.empty()) break;
        layout = layout.repeat(Resource::Lane, 2, axis());
        lanes.pop_back();
        break;
      default:
        if (of_warps.empty()) break;
        layout = layout.repeat(Resource::Warp, of_warps.back(), axis());
        of_warps.pop_back();
    }
  }
  for (int a = 0; a < rank; ++a) {
    const int64_t covered = layout.padded_shape()[static_cast<size_t>(a)];
    const int64_t needed = shape[static_cast<size_t>(a)];
    if (covered < needed)
      layout = layout.repeat(Resource::Reg, (needed + covered - 1) / covered, a);
  }
  return layout.crop(shape);
} catch (const InternalError&) {
  return std::nullopt;
}

Layout random_layout(std::mt19937& random, const Coordinate& shape, int64_t warps) {
  std::optional<Layout> layout;
  while (!layout) layout = try_layout(random, shape, warps);
  return *layout;
}

}  // namespace

TEST_CASE("locality: a loop over an accumulator owns it, its rows, its columns and the next A") {
  for (const WarpGrid& warps : {WarpGrid{4, 1, 1}, WarpGrid{2, 2, 1}, WarpGrid{2, 1, 2}}) {
    const Layout acc = mma_accumulator(64, 96, warps);
    const Registers own = check(acc, {0, 1}, acc);
    REQUIRE(own);
    for (size_t reg = 0; reg < own->size(); ++reg) CHECK_ALL((*own)[reg] == static_cast<int>(reg));
    CHECK(check(acc, {0}, reduce_axis(acc, 1)));
    CHECK(check(acc, {1}, reduce_axis(acc, 0)));
    CHECK(check(acc, {0, kNoAxis}, insert_axis(reduce_axis(acc, 1), 1)));
    CHECK(check(acc, {1, 0}, permute_axes(acc, {1, 0})));
    CHECK(check(acc, {}, replicated({}, 4)));
    CHECK_FALSE(check(acc, {0, 1}, replicated({64, 96}, 4)));
    const bool whole_rows = warps.n == 1;
    CHECK(check(acc, {0, 1}, mma_operand_a(64, 96, kMma16BitK16, warps)).has_value() == whole_rows);
  }
}

TEST_CASE("locality: what a thread lacks") {
  const Layout acc = mma_accumulator(64, 96, {4, 1, 1});
  CHECK_FALSE(check(acc, {0, 1}, blocked({64, 96}, 4, 4)));
  CHECK_FALSE(check(acc, {0, 1}, mma_operand_a(64, 96, kMma8Bit, {4, 1, 1})));  // another lane
  CHECK_FALSE(check(acc, {0}, blocked({64}, 4, 4)));
  // Every thread has its element, but not in the same register.
  const Layout rows = Layout(1).repeat(Resource::Lane, 32, 0).repeat(Resource::Warp, 4, 0);
  CHECK_FALSE(check(rows, {0}, replicated({128}, 4)));
  CHECK(check(replicated({128}, 4), {0}, replicated({128}, 4)));
}

TEST_CASE("locality: what lies outside the loop or the fragment is not needed") {
  const Layout wide = blocked({16, 64}, 4, 4);
  const Registers less = check(wide, {0, 1}, wide.crop({16, 5}));
  REQUIRE(less);
  CHECK(std::count(less->begin(), less->end(), -1) == 0);
  const Registers row = check(replicated({8}, 1), {0}, replicated({3}, 1));
  CHECK((row == std::vector<int>{0, 1, 2, -1, -1, -1, -1, -1}));
  CHECK(check(replicated({3}, 1), {0}, replicated({8}, 1)));
  // A lane beyond the loop's box may lack the fragment's element of its row.
  const Layout narrow = mma_accumulator(16, 8, {}).crop({16, 1});
  CHECK(check(narrow, {0, kNoAxis}, narrow));
  CHECK_FALSE(check(mma_accumulator(16, 8, {}), {0, kNoAxis}, narrow));
}

TEST_CASE("locality: register copies count as one, in both") {
  const Layout twice = blocked({16, 8}, 1, 4).repeat(Resource::Reg, 2, kNoAxis);
  const Registers found = check(twice, {0, 1}, twice);
  REQUIRE(found);
  CHECK(found->front() == (*found)[found->size() / 2]);
}

TEST_CASE("locality: any layouts of small tiles, against a search") {
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int local = 0, lacking = 0;
  for (int round = 0; round < 1500; ++round) {
    const int64_t warps = std::vector<int64_t>{1, 2, 3, 4}[static_cast<size_t>(pick(0, 3))];
    const int rank = static_cast<int>(pick(1, 3));
    Coordinate extents;
    for (int axis = 0; axis < rank; ++axis) extents.push_back(pick(1, 9));
    const Layout loop = random_layout(random, extents, warps);
    // Some of the loop's axes in any order, an axis of 1 here and there, extents more or less.
    std::vector<int> axes;
    for (int axis = 0; axis < rank; ++axis)
      if (pick(0, 3)) axes.push_back(axis);
    std::shuffle(axes.begin(), axes.end(), random);
    const std::vector<int> used = axes;
    if (pick(0, 3) == 0) axes.insert(axes.begin() + pick(0, static_cast<int64_t>(axes.size())), -1);
    Layout fragment(0);
    if (pick(0, 2)) {  // what the loop owns, so that many are local
      fragment = loop;
      for (int axis = rank; axis-- > 0;)
        if (std::find(used.begin(), used.end(), axis) == used.end())
          fragment = reduce_axis(fragment, axis);
      std::vector<int> sorted = used, order;
      std::sort(sorted.begin(), sorted.end());
      for (const int axis : used)
        order.push_back(
            static_cast<int>(std::find(sorted.begin(), sorted.end(), axis) - sorted.begin()));
      fragment = permute_axes(fragment, order);
      for (size_t k = 0; k < axes.size(); ++k)
        if (axes[k] == kNoAxis) fragment = insert_axis(fragment, static_cast<int>(k));
      Coordinate shape = fragment.shape();
      for (int64_t& extent : shape) extent = pick(1, extent);
      if (pick(0, 1)) fragment = fragment.crop(shape);
    } else if (!axes.empty()) {
      Coordinate shape;
      for (const int axis : axes) shape.push_back(axis == kNoAxis ? 1 : pick(1, 9));
      fragment = random_layout(random, shape, warps);
    } else {
      fragment = replicated({}, warps);
    }
    check(loop, axes, fragment) ? ++local : ++lacking;
  }
  CHECK(local > 300);
  CHECK(lacking > 300);
}

TEST_CASE("locality: layouts of different threads, or of another rank") {
  CHECK_THROWS_AS(local_registers(blocked({64}, 4, 4), {0}, blocked({64}, 2, 4)), InternalError);
  CHECK_THROWS_AS(local_registers(blocked({64}, 4, 4), {0, 1}, blocked({64}, 4, 4)), InternalError);
}

TEST_CASE("locality: 128 registers of 8 warps take no time") {
  const Layout acc = mma_accumulator(128, 256, {8, 1, 1});
  const Layout operand = mma_operand_a(128, 256, kMma16BitK16, {8, 1, 1});
  REQUIRE(acc.registers() == 128);
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    CHECK(local_registers(acc, {0, 1}, operand));
    best = std::min(best, std::chrono::steady_clock::now() - start);
  }
  CHECK(best < std::chrono::milliseconds(20));
}
