#include "ir/layout/conversion.h"

#include <numeric>

#include "ir/error.h"
#include "ir/layout/access.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "tests/ir/layout_checks.h"

using namespace kiln;
using Kind = Conversion::Kind;

namespace {

constexpr int64_t kNothing = -1;

// What every place holds: the element's number, or nothing.
using Contents = std::map<Owner, int64_t>;

int64_t number(const Layout& layout, const Coordinate& c) {
  if (!layout.contains(c)) return kNothing;
  int64_t flat = 0;
  for (size_t axis = 0; axis < c.size(); ++axis) flat = flat * layout.shape()[axis] + c[axis];
  return flat;
}

Contents contents(const Layout& layout) {
  Contents all;
  for_each_place(layout, [&](const Owner& o) { all[o] = number(layout, layout.coordinate(o)); });
  return all;
}

// Carries the conversion out as its fields say.
Contents run(const Conversion& conversion, const Layout& from, const Layout& to) {
  const Contents before = contents(from);
  Contents after;
  std::map<int64_t, int64_t> memory;
  if (conversion.kind == Kind::Shared)
    for (const auto& [place, value] : before)
      if (value != kNothing)
        memory[conversion.staging->owner(from.coordinate(place)).offset] = value;
  for_each_place(to, [&](const Owner& o) {
    switch (conversion.kind) {
      case Kind::Identical: after[o] = before.at(o); break;
      case Kind::Registers: {
        const int source = conversion.registers[static_cast<size_t>(o.reg)];
        after[o] =
            source < 0 ? kNothing : before.at({.reg = source, .lane = o.lane, .warp = o.warp});
        break;
      }
      case Kind::Shuffle: after[o] = kNothing; break;
      case Kind::Shared: {
        const Coordinate c = to.coordinate(o);
        after[o] = to.contains(c) ? memory.at(conversion.staging->owner(c).offset) : kNothing;
      }
    }
  });
  for (const ShuffleStep& step : conversion.steps)
    for (int64_t warp = 0; warp < to.warps(); ++warp)
      for (size_t lane = 0; lane < 32; ++lane) {
        if (!(step.takes >> lane & 1)) {
          CHECK_ALL(step.source[lane] == lane);
          continue;
        }
        after[{.reg = step.to_reg, .lane = static_cast<int64_t>(lane), .warp = warp}] =
            before.at({.reg = step.from_reg, .lane = step.source[lane], .warp = warp});
      }
  return after;
}

Conversion check(const Layout& from, const Layout& to, int bytes) {
  INFO(str(from) << "\nto " << str(to));
  const Conversion conversion = plan_conversion(from, to, bytes);
  const Contents after = run(conversion, from, to);
  for (const auto& [place, value] : contents(to))
    if (value != kNothing) CHECK_ALL(after.at(place) == value);
  return conversion;
}

}  // namespace

TEST_CASE("conversion: an accumulator is the next gemm's 16-bit operand A, at no cost") {
  for (const int64_t n : {16, 32, 48, 64, 80, 96, 112, 128, 176}) {
    const Conversion one_row =
        check(mma_accumulator(64, n, {4, 1, 1}), mma_operand_a(64, n, kMma16BitK16, {4, 1, 1}), 2);
    CHECK(one_row.kind == Kind::Identical);
    const Conversion wgmma =
        check(wgmma_accumulator(128, n, 2), wgmma_operand_a(128, n, kMma16BitK16, 2), 2);
    CHECK(wgmma.kind == Kind::Identical);
    // Two rows of tiles a warp.
    const Conversion two_rows = check(mma_accumulator(128, n, {4, 1, 1}),
                                      mma_operand_a(128, n, kMma16BitK16, {4, 1, 1}), 2);
    CHECK(two_rows.kind == Kind::Identical);
  }
  const Conversion k8 =
      check(mma_accumulator(64, 40, {4, 1, 1}), mma_operand_a(64, 40, kMma16BitK8, {4, 1, 1}), 2);
  CHECK(k8.kind == Kind::Identical);
  // Copies: each warp has its own, as the other has.
  const Conversion copies =
      check(mma_accumulator(32, 48, {2, 1, 2}), mma_operand_a(32, 48, kMma16BitK16, {2, 1, 2}), 2);
  CHECK(copies.kind == Kind::Identical);
  CHECK(check(mma_accumulator(32, 24, {2, 1, 2}), mma_operand_a(32, 24, kMma16BitK16, {2, 1, 2}), 2)
            .kind == Kind::Registers);
  const Conversion padded =
      check(mma_accumulator(64, 24, {4, 1, 1}), mma_operand_a(64, 24, kMma16BitK16, {4, 1, 1}), 2);
  CHECK(padded.kind == Kind::Registers);
  CHECK(padded.registers.size() == 16);
  CHECK(std::count(padded.registers.begin(), padded.registers.end(), -1) == 4);
}

TEST_CASE("conversion: registers in another order stay in their thread") {
  const Layout start = Layout(2).repeat(Resource::Lane, 32, 0);
  const Layout rows = start.repeat(Resource::Reg, 3, 0).repeat(Resource::Reg, 5, 1);
  const Layout columns = start.repeat(Resource::Reg, 5, 1).repeat(Resource::Reg, 3, 0);
  const Conversion conversion = check(rows, columns, 4);
  CHECK(conversion.kind == Kind::Registers);
  CHECK(conversion.registers[1] == 3);
  CHECK(conversion.cost == 0);
}

TEST_CASE("conversion: an accumulator becomes an 8-bit operand within its quads") {
  const Conversion conversion =
      check(mma_accumulator(64, 64, {4, 1, 1}), mma_operand_a(64, 64, kMma8Bit, {4, 1, 1}), 1);
  CHECK(conversion.kind == Kind::Shuffle);
  for (const ShuffleStep& step : conversion.steps)
    for (size_t lane = 0; lane < 32; ++lane) CHECK_ALL(step.source[lane] / 4 == lane / 4);
  const Conversion tf32 =
      check(mma_accumulator(64, 32, {4, 1, 1}), mma_operand_a(64, 32, kMmaTf32, {4, 1, 1}), 4);
  CHECK(tf32.kind == Kind::Shuffle);
}

TEST_CASE("conversion: across warps it is shared memory") {
  const Conversion conversion =
      check(mma_accumulator(64, 96, {2, 2, 1}), mma_accumulator(64, 96, {4, 1, 1}), 4);
  CHECK(conversion.kind == Kind::Shared);
  REQUIRE(conversion.staging);
  // Padded rows: the plain ones would make eight rows meet in four banks.
  CHECK(access_wavefronts(mma_accumulator(64, 96, {2, 2, 1}), *conversion.staging, 1, 2, 4) <
        access_wavefronts(mma_accumulator(64, 96, {2, 2, 1}),
                          Layout(2).repeat(Resource::Offset, 96, 1).repeat(Resource::Offset, 64, 0),
                          1, 2, 4));
}

TEST_CASE("conversion: row vectors between replications") {
  const Layout acc = mma_accumulator(64, 80, {4, 1, 1});
  const Layout row = reduce_axis(acc, 1), column = reduce_axis(acc, 0);
  CHECK(check(row, row, 4).kind == Kind::Identical);
  check(replicated({64}, 4), row, 4);
  const Layout one_warp = reduce_axis(mma_accumulator(16, 8, {}), 1);
  const Conversion own = check(replicated({16}, 1), one_warp, 4);  // own registers, by lane
  CHECK(own.kind == Kind::Shuffle);
  for (const ShuffleStep& step : own.steps) CHECK(step.is_local());
  check(row, blocked({64}, 4, 4), 4);
  check(blocked({64}, 4, 4), row, 4);
  check(row, replicated({64}, 4), 4);
  check(column, blocked({80}, 4, 4), 4);
  check(blocked({80}, 4, 4), column, 4);
  check(replicated({}, 4), replicated({}, 4), 4);
}

TEST_CASE("conversion: every pair of layouts of one tile") {
  for (const Coordinate& shape : {Coordinate{32, 48}, Coordinate{24, 20}, Coordinate{64, 80}}) {
    const int64_t m = shape[0], n = shape[1];
    const std::vector<Layout> layouts{mma_accumulator(m, n, {2, 1, 2}),
                                      mma_accumulator(m, n, {1, 2, 2}),
                                      mma_accumulator(m, n, {4, 1, 1}),
                                      mma_operand_a(m, n, kMma16BitK16, {4, 1, 1}),
                                      wgmma_accumulator(m, n, 1),
                                      mma_operand_b(m, n, kMma16BitK16, {1, 2, 2}),
                                      blocked(shape, 4, 2),
                                      permute_axes(blocked({n, m}, 4, 2), {1, 0}),
                                      mma_operand_a(m, n, kMma8Bit, {1, 4, 1})};
    for (const Layout& from : layouts)
      for (const Layout& to : layouts) {
        const Conversion conversion = check(from, to, 2);
        CHECK((from != to || conversion.kind == Kind::Identical));
      }
  }
}

TEST_CASE("conversion: layouts of different tiles or thread counts do not convert") {
  CHECK_THROWS_AS(plan_conversion(blocked({64, 64}, 4, 2), blocked({64, 32}, 4, 2), 2),
                  InternalError);
  CHECK_THROWS_AS(plan_conversion(blocked({64, 64}, 4, 2), blocked({64, 64}, 2, 2), 2),
                  InternalError);
}
