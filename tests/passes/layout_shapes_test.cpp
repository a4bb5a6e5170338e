#include <catch2/catch.hpp>
#include <numeric>
#include <random>

#include "ir/layout/fragments.h"
#include "ir/layout/locality.h"
#include "ir/layout/reshape.h"
#include "passes/layout_shapes_impl.h"

namespace kiln::layouts {
namespace {

class LayoutShapes {
 public:
  LayoutShapes() : seed_(std::random_device{}()), random_(seed_) {}
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  Coordinate extents(int rank) {
    Coordinate shape;
    for (int axis = 0; axis < rank; ++axis) shape.push_back(pick(1, 20));
    return shape;
  }
  Layout layout(const Coordinate& shape) {
    if (shape.size() == 2 && pick(0, 1)) return mma_accumulator(shape[0], shape[1], {2, 2, 1});
    return pick(0, 3) ? blocked(shape, 4, 4) : one_owner(shape, 4);
  }
  // Some of a loop's axes in any order, an axis of 1 here and there.
  Axes axes(int rank, int64_t percent) {
    Axes all(static_cast<size_t>(rank));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random_);
    std::erase_if(all, [&](int) { return pick(1, 100) > percent; });
    if (pick(0, 2) == 0) all.insert(all.begin() + pick(0, static_cast<int64_t>(all.size())), -1);
    return all;
  }

  const uint32_t seed_;
  std::mt19937 random_;
};

TEST_CASE_METHOD(LayoutShapes, "layout shapes: what a loop owns is local to it") {
  INFO("seed " << seed_);
  for (int round = 0; round < 500; ++round) {
    const int rank = static_cast<int>(pick(1, 4));
    const Layout loop = layout(extents(rank));
    const Axes axes = this->axes(rank, 70);
    Coordinate shape;
    for (const int axis : axes) shape.push_back(axis == kNoAxis ? 1 : pick(1, 30));
    const Layout fragment = owned_by(loop, axes, shape);
    INFO(str(loop) << "\nowns " << str(fragment));
    REQUIRE(fragment.shape() == shape);
    REQUIRE(local_registers(loop, axes, fragment));
  }
}

TEST_CASE_METHOD(LayoutShapes, "layout shapes: a loop runs where its fragment is") {
  INFO("seed " << seed_);
  for (int round = 0; round < 500; ++round) {
    const int rank = static_cast<int>(pick(1, 4));
    const Axes axes = this->axes(rank, 85);
    Coordinate box(static_cast<size_t>(rank), 1), shape;
    for (const int axis : axes) {
      shape.push_back(axis == kNoAxis ? 1 : pick(1, 20));
      if (axis != kNoAxis) box[static_cast<size_t>(axis)] = pick(1, 20);
    }
    const Layout fragment = layout(shape);
    const auto loop = loop_over(fragment, axes, box);
    if (!loop) {  // the accumulator's padding, or one_owner's, on an axis of 1
      CHECK(fragment.is_padded());
      continue;
    }
    INFO(str(fragment) << "\nis where " << str(*loop));
    REQUIRE(loop->shape() == box);
    REQUIRE(local_registers(*loop, axes, fragment));
  }
  CHECK_FALSE(loop_over(blocked({8}, 4, 4), {0}, {8, 3}));
}

TEST_CASE("layout shapes: axes of 1 come and go") {
  const Layout matrix = blocked({16, 24}, 4, 4);
  const auto wider = reshaped(matrix, {1, 16, 1, 24});
  REQUIRE(wider);
  CHECK(wider->shape() == Coordinate{1, 16, 1, 24});
  CHECK(wider->registers() == matrix.registers());
  CHECK(reshaped(*wider, {16, 24}) == matrix);
  CHECK(reshaped(blocked({1}, 4, 4), {}) == replicated({}, 4));
  CHECK_FALSE(reshaped(mma_accumulator(16, 1, {}), {16}));  // seven columns of padding
}

TEST_CASE("layout shapes: whole lines stay in a warp where there are enough") {
  for (const Coordinate& shape : {Coordinate{16, 128}, {4, 1024}, {17, 33}, {5, 3, 7}, {128, 16}})
    for (const int64_t warps : {1, 3, 4})
      for (int axis = 0; axis < 2; ++axis) {
        const Layout lines = whole_lines(shape, axis, warps, 4);
        INFO(str(lines));
        CHECK(lines.shape() == shape);
        CHECK(plan_reduction(lines, axis)->parts == 1);
      }
  CHECK(plan_reduction(whole_lines({1, 1024}, 1, 4, 4), 1)->parts == 4);
}

TEST_CASE("layout shapes: one owner for each point") {
  for (const Coordinate& shape : {Coordinate{1}, {16}, {1000}, {1, 1}, {3, 5}, {2, 64}, {3, 4, 5}})
    for (const int64_t warps : {1, 3, 8}) {
      const Layout layout = one_owner(shape, warps);
      CHECK(layout.shape() == shape);
      CHECK(layout.is_injective());
      CHECK(layout.warps() == warps);
    }
}

}  // namespace
}  // namespace kiln::layouts
