#include "ir/layout/reshape.h"

#include <numeric>
#include <set>

#include "ir/error.h"
#include "ir/layout/fragments.h"
#include "ir/layout/shared.h"
#include "tests/ir/layout_checks.h"

using namespace kiln;

namespace {

std::vector<Layout> fragments() {
  return {mma_accumulator(32, 80, {2, 1, 1}),
          mma_accumulator(32, 112, {1, 2, 2}),
          mma_accumulator(24, 20, {1, 3, 1}),
          mma_operand_a(64, 96, kMma16BitK16, {2, 2, 1}),
          mma_operand_b(48, 24, kMma8Bit, {2, 3, 1}),
          wgmma_accumulator(128, 176, 2),
          wgmma_accumulator(64, 88, 1),
          blocked({64, 80}, 4, 2),
          blocked({5, 7}, 3, 4),
          blocked({4, 6, 10}, 2, 4),
          replicated({3, 5}, 2),
          Layout(2)
              .repeat(Resource::Reg, 2, kNoAxis)
              .repeat(Resource::Reg, 3, 1)
              .repeat(Resource::Reg, 3, kNoAxis)
              .repeat(Resource::Lane, 32, 0)};
}

Coordinate without(Coordinate c, int axis) {
  c.erase(c.begin() + axis);
  return c;
}

std::set<std::pair<int64_t, int64_t>> threads_of(const Layout& layout, const Coordinate& c) {
  std::set<std::pair<int64_t, int64_t>> threads;
  for (const Owner& owner : layout.owners(c)) threads.insert({owner.lane, owner.warp});
  return threads;
}

// Runs the plan with sums: what every thread holds in the end.
void check_reduction(const Layout& source, int axis) {
  INFO(str(source) << "\naxis " << axis);
  const auto plan = plan_reduction(source, axis);
  REQUIRE(plan);
  CHECK(plan->result == reduce_axis(source, axis));
  const auto value = [&](const Coordinate& c) {
    int64_t flat = 0;
    for (const int64_t i : c) flat = flat * 211 + i;
    return source.contains(c) ? flat * 7919 % 1009 + 1 : 0;
  };
  std::map<Coordinate, int64_t> expected;
  for_each_coordinate(source.padded_shape(),
                      [&](const Coordinate& c) { expected[without(c, axis)] += value(c); });

  const int64_t registers = plan->result.registers();
  std::vector<std::map<std::pair<int64_t, int64_t>, int64_t>> sums;  // by register, of a thread
  for (int64_t reg = 0; reg < registers; ++reg) {
    std::map<std::pair<int64_t, int64_t>, int64_t> sum;
    for (int64_t warp = 0; warp < source.warps(); ++warp) {
      for (int64_t lane = 0; lane < 32; ++lane)
        for (const int from : plan->sources[static_cast<size_t>(reg)])
          sum[{warp, lane}] += value(source.coordinate({.reg = from, .lane = lane, .warp = warp}));
      for (const int mask : plan->lane_masks) {
        std::vector<int64_t> before(32);
        for (int64_t lane = 0; lane < 32; ++lane)
          before[static_cast<size_t>(lane)] = sum[{warp, lane}];
        for (int64_t lane = 0; lane < 32; ++lane)
          sum[{warp, lane}] += before[static_cast<size_t>(lane ^ mask)];
      }
    }
    sums.push_back(sum);
  }
  std::map<Coordinate, std::map<int64_t, int64_t>> parts;  // of an element, by part
  for_each_place(plan->result, [&](const Owner& o) {
    const int64_t part = plan->part(o);
    CHECK_ALL((part >= 0 && part < plan->parts));
    const int64_t sum = sums[static_cast<size_t>(o.reg)][{o.warp, o.lane}];
    const auto [entry, is_new] = parts[plan->result.coordinate(o)].try_emplace(part, sum);
    CHECK_ALL((is_new || entry->second == sum));
  });
  for (const auto& [element, sum] : expected) {
    int64_t total = 0;
    for (const auto& [part, partial] : parts[element]) total += partial;
    CHECK_ALL(total == sum);
  }
}

}  // namespace

TEST_CASE("reshape: a reduced axis leaves each holder of a part, once a thread") {
  for (const Layout& layout : fragments())
    for (int axis = 0; axis < layout.rank(); ++axis) {
      INFO(str(layout) << "\naxis " << axis);
      const Layout reduced = reduce_axis(layout, axis);
      check_post_conditions(reduced);
      CHECK(reduced.shape() == without(layout.shape(), axis));
      std::map<Coordinate, std::set<std::pair<int64_t, int64_t>>> holders;
      for_each_coordinate(layout.padded_shape(), [&](const Coordinate& c) {
        holders[without(c, axis)].merge(threads_of(layout, c));
      });
      for (const auto& [element, threads] : holders) {
        CHECK_ALL(threads_of(reduced, element) == threads);
        CHECK_ALL(reduced.owners(element).size() == threads.size());
      }
    }
}

TEST_CASE("reshape: reductions add every element once") {
  for (const Layout& layout : fragments())
    for (int axis = 0; axis < layout.rank(); ++axis) check_reduction(layout, axis);
}

TEST_CASE("reshape: the row of an accumulator is spread over a quad") {
  const auto plan = plan_reduction(mma_accumulator(64, 128, {4, 1, 1}), 1);
  REQUIRE(plan);
  CHECK(plan->lane_masks == std::vector<int>{1, 2});
  CHECK(plan->parts == 1);
  CHECK(plan->result.registers() == 2);
  CHECK(plan->result.replication() == 4);
  const auto split = plan_reduction(mma_accumulator(64, 96, {2, 3, 1}), 1);
  REQUIRE(split);
  CHECK(split->parts == 3);
  CHECK(str(split->part) == "warp/2%3");
}

TEST_CASE("reshape: copies that are not bits of their own have no plan") {
  Atom atom;  // lane 1 holds register 1 of lane 0 and the other way round
  atom[Resource::Reg] = {{0, 1}};
  atom[Resource::Lane] = {{0, 1}, {1, 0}};
  CHECK_FALSE(plan_reduction(Layout(2, atom), 1));
}

TEST_CASE("reshape: axes move and appear") {
  for (const Layout& layout : fragments()) {
    if (layout.rank() != 2) continue;
    const Layout turned = permute_axes(layout, {1, 0});
    const Layout wider = insert_axis(layout, 1);
    CHECK(permute_axes(turned, {1, 0}) == layout);
    CHECK(reduce_axis(wider, 1) == reduce_axis(insert_axis(layout, 0), 0));
    for_each_place(layout, [&](const Owner& o) {
      const Coordinate c = layout.coordinate(o);
      CHECK_ALL((turned.coordinate(o) == Coordinate{c[1], c[0]}));
      CHECK_ALL((wider.coordinate(o) == Coordinate{c[0], 0, c[1]}));
    });
    check_post_conditions(turned);
  }
  const Layout cube = blocked({4, 6, 10}, 2, 4);
  const Layout turned = permute_axes(cube, {2, 0, 1});
  CHECK(turned.shape() == Coordinate{10, 4, 6});
  CHECK(permute_axes(turned, {1, 2, 0}) == cube);
}

TEST_CASE("reshape: a stack holds its parts one after the other") {
  std::vector<Layout> parts = {row_major({6, 40}, 48),    row_major({5, 3}),
                               swizzled({16, 96}, 2, 64), swizzled({8, 64}, 2, 128),
                               swizzled({20, 32}, 2, 64), row_major({16}),
                               row_major({2, 4, 8})};
  for (const Layout& part : parts)
    for (int64_t count : {1, 2, 3, 4, 6}) {
      const Layout stack = stacked(part, count, 8);
      const Stacked back = unstacked(stack);
      CHECK(stack.shape()[0] == count);
      CHECK(back.stride % 8 == 0);
      CHECK(back.stride >= part.extent(Resource::Offset));
      CHECK(stack.extent(Resource::Offset) == count * back.stride);
      CHECK(back.part.shape() == part.shape());
      for (int64_t offset = 0; offset < part.extent(Resource::Offset); ++offset) {
        CHECK_ALL(back.part.holds({.offset = offset}) == part.holds({.offset = offset}));
        if (!part.holds({.offset = offset})) continue;
        Coordinate c = part.coordinate({.offset = offset});
        CHECK_ALL(back.part.coordinate({.offset = offset}) == c);
        for (int64_t place = 0; place < count; ++place) {
          Coordinate in_stack = c;
          in_stack.insert(in_stack.begin(), place);
          CHECK_ALL(stack.coordinate({.offset = place * back.stride + offset}) == in_stack);
        }
      }
      check_post_conditions(stack);
    }
  CHECK_THROWS_AS(unstacked(permute_axes(row_major({6, 40}, 48), {1, 0})), InternalError);
}

TEST_CASE("reshape: vectors are consecutive, aligned and whole") {
  std::vector<Layout> layouts = fragments();
  layouts.push_back(row_major({6, 40}, 48));
  layouts.push_back(row_major({6, 40}, 44));
  layouts.push_back(swizzled({16, 96}, 2, 64));
  layouts.push_back(mma_accumulator(16, 20, {}).crop({16, 19}));
  for (const Layout& layout : layouts)
    for (int axis = 0; axis < layout.rank(); ++axis) {
      const auto a = static_cast<size_t>(axis);
      const Resource resource =
          layout.extent(Resource::Offset) > 1 ? Resource::Offset : Resource::Reg;
      // By definition: every group starts at a multiple of v and goes on by one.
      const auto is_vector = [&](int64_t v) {
        bool ok = layout.shape()[a] % v == 0;
        for_each_place(layout, [&](const Owner& o) {
          if (!ok || !layout.holds(o)) return;
          Owner first = o;
          first[resource] = o[resource] / v * v;
          ok = layout.holds(first) && layout.coordinate(first)[a] % v == 0;
          if (!ok) return;
          Coordinate expected = layout.coordinate(first);
          expected[a] += o[resource] % v;
          ok = layout.coordinate(o) == expected;
        });
        return ok;
      };
      INFO(str(layout) << "\naxis " << axis);
      const int64_t width = vector_width(layout, axis);
      CHECK(is_vector(width));
      CHECK_FALSE((2 * width <= layout.extent(resource) && is_vector(2 * width)));

      for (int64_t v = 1; v <= width; v *= 2) {
        const Layout vectors = in_vectors(layout, axis, v);
        check_post_conditions(vectors);
        for_each_place(vectors, [&](const Owner& o) {
          if (!vectors.holds(o)) return;
          Owner first = o;
          first[resource] *= v;
          Coordinate expected = layout.coordinate(first);
          expected[a] /= v;
          CHECK_ALL(vectors.coordinate(o) == expected);
        });
      }
      CHECK_THROWS_AS(in_vectors(layout, axis, 2 * width), InternalError);
    }
}
