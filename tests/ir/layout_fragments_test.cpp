#include "ir/layout/fragments.h"

#include "ir/error.h"
#include "tests/ir/layout_checks.h"

using namespace kiln;

namespace {

constexpr WarpGrid kOneWarp{};

// A 32-bit register and the element in it, as the PTX ISA counts them.
struct Packed {
  int64_t q, h;
};
Packed packed(int64_t reg, int64_t per_register) {
  return {reg / per_register, reg % per_register};
}

}  // namespace

TEST_CASE("fragments: accumulators of m16n8 are the PTX table") {
  // c0, c1 (g, 2c), (g, 2c+1); c2, c3 eight rows below.
  const Layout layout = mma_accumulator(16, 8, kOneWarp);
  CHECK(layout.registers() == 4);
  for (int64_t lane = 0; lane < 32; ++lane)
    for (int64_t i = 0; i < 4; ++i)
      CHECK_ALL((layout.coordinate({.reg = i, .lane = lane}) ==
                 Coordinate{lane / 4 + (i < 2 ? 0 : 8), lane % 4 * 2 + (i & 1)}));
  check_post_conditions(layout);
}

TEST_CASE("fragments: operands of m16n8k16 are the PTX table") {
  const Layout a = mma_operand_a(16, 16, kMma16BitK16, kOneWarp);
  const Layout b = mma_operand_b(16, 8, kMma16BitK16, kOneWarp);
  CHECK(a.registers() == 8);
  CHECK(b.registers() == 4);
  for (int64_t lane = 0; lane < 32; ++lane) {
    const int64_t g = lane / 4, c = lane % 4;
    const Coordinate a_table[] = {{g, 2 * c}, {g + 8, 2 * c}, {g, 2 * c + 8}, {g + 8, 2 * c + 8}};
    for (int64_t i = 0; i < 8; ++i) {
      Coordinate expected = a_table[packed(i, 2).q];
      expected[1] += packed(i, 2).h;
      CHECK_ALL(a.coordinate({.reg = i, .lane = lane}) == expected);
    }
    const Coordinate b_table[] = {{2 * c, g}, {2 * c + 8, g}};
    for (int64_t i = 0; i < 4; ++i) {
      Coordinate expected = b_table[packed(i, 2).q];
      expected[0] += packed(i, 2).h;
      CHECK_ALL(b.coordinate({.reg = i, .lane = lane}) == expected);
    }
  }
}

TEST_CASE("fragments: operands of m16n8k8, 16-bit, are the PTX table") {
  const Layout a = mma_operand_a(16, 8, kMma16BitK8, kOneWarp);
  const Layout b = mma_operand_b(8, 8, kMma16BitK8, kOneWarp);
  CHECK(a.registers() == 4);
  CHECK(b.registers() == 2);
  for (int64_t lane = 0; lane < 32; ++lane)
    for (int64_t i = 0; i < 4; ++i) {
      CHECK_ALL((a.coordinate({.reg = i, .lane = lane}) ==
                 Coordinate{lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2}));
      if (i < 2)
        CHECK_ALL(
            (b.coordinate({.reg = i, .lane = lane}) == Coordinate{lane % 4 * 2 + i, lane / 4}));
    }
}

TEST_CASE("fragments: operands of m16n8k8 tf32 are the PTX table") {
  const Layout a = mma_operand_a(16, 8, kMmaTf32, kOneWarp);
  const Layout b = mma_operand_b(8, 8, kMmaTf32, kOneWarp);
  for (int64_t lane = 0; lane < 32; ++lane) {
    const int64_t g = lane / 4, c = lane % 4;
    const Coordinate table[] = {{g, c}, {g + 8, c}, {g, c + 4}, {g + 8, c + 4}};
    for (int64_t i = 0; i < 4; ++i) CHECK_ALL(a.coordinate({.reg = i, .lane = lane}) == table[i]);
    for (int64_t i = 0; i < 2; ++i)
      CHECK_ALL((b.coordinate({.reg = i, .lane = lane}) == Coordinate{c + 4 * i, g}));
  }
}

TEST_CASE("fragments: operands of m16n8k32 are the PTX table") {
  const Layout a = mma_operand_a(16, 32, kMma8Bit, kOneWarp);
  const Layout b = mma_operand_b(32, 8, kMma8Bit, kOneWarp);
  CHECK(a.registers() == 16);
  CHECK(b.registers() == 8);
  for (int64_t lane = 0; lane < 32; ++lane) {
    const int64_t g = lane / 4, c = lane % 4;
    for (int64_t i = 0; i < 16; ++i) {
      const auto [q, byte] = packed(i, 4);
      CHECK_ALL((a.coordinate({.reg = i, .lane = lane}) ==
                 Coordinate{g + 8 * (q % 2), 16 * (q / 2) + 4 * c + byte}));
      if (i < 8)
        CHECK_ALL((b.coordinate({.reg = i, .lane = lane}) == Coordinate{16 * q + 4 * c + byte, g}));
    }
  }
}

TEST_CASE("fragments: wgmma's accumulator and A are the PTX formulas for every n") {
  for (int64_t n = 8; n <= 256; n += 8) {
    const Layout d = wgmma_accumulator(64, n, 1);
    CHECK(d.registers() == n / 2);
    for (int64_t t = 0; t < 128; ++t)
      for (int64_t i = 0; i < n / 2; ++i)
        CHECK_ALL((d.coordinate({.reg = i, .lane = t % 32, .warp = t / 32}) ==
                   Coordinate{16 * (t / 32) + t % 32 / 4 + 8 * (i / 2 % 2),
                              8 * (i / 4) + 2 * (t % 4) + i % 2}));
  }
  const Layout a = wgmma_operand_a(64, 48, kMma16BitK16, 1);
  const Layout bytes = wgmma_operand_a(64, 96, kMma8Bit, 1);
  for (int64_t t = 0; t < 128; ++t) {
    const int64_t row = 16 * (t / 32) + t % 32 / 4;
    for (int64_t i = 0; i < 24; ++i) {  // step s, register q, half h
      const int64_t s = i / 8, q = i / 2 % 4, h = i % 2;
      CHECK_ALL((a.coordinate({.reg = i, .lane = t % 32, .warp = t / 32}) ==
                 Coordinate{row + 8 * (q % 2), 16 * s + 8 * (q / 2) + 2 * (t % 4) + h}));
    }
    for (int64_t i = 0; i < 48; ++i) {
      const int64_t s = i / 16, q = i / 4 % 4, b = i % 4;
      CHECK_ALL((bytes.coordinate({.reg = i, .lane = t % 32, .warp = t / 32}) ==
                 Coordinate{row + 8 * (q % 2), 32 * s + 16 * (q / 2) + 4 * (t % 4) + b}));
    }
  }
}

TEST_CASE("fragments: warpgroups split the rows") {
  const Layout d = wgmma_accumulator(256, 80, 2);
  CHECK(d.warps() == 8);
  CHECK(d.registers() == 2 * 40);
  for (int64_t warp = 0; warp < 8; ++warp)
    for (int64_t reg : {0, 40})
      CHECK(d.coordinate({.reg = reg, .warp = warp}) ==
            Coordinate{128 * (warp / 4) + 64 * (reg / 40) + 16 * (warp % 4), 0});
  check_post_conditions(d);
}

TEST_CASE("fragments: tiles of any extents, exactly covered") {
  for (const int64_t m : {16, 48, 80})
    for (const int64_t n : {8, 40, 64, 80, 96, 112, 176})
      for (const WarpPolicy policy : {WarpPolicy::Rows, WarpPolicy::Columns, WarpPolicy::Square})
        for (const int64_t warps : {1, 3, 4}) {
          const WarpGrid grid = split_warps(policy, m / 16, n / 8, warps);
          const Layout c = mma_accumulator(m, n, grid);
          CHECK_FALSE(c.is_padded());
          CHECK(c.shape() == Coordinate{m, n});
          CHECK(c.warps() == warps);
          CHECK(c.registers() == m * n / (32 * grid.m * grid.n));
          CHECK(c.replication() == grid.copies);
          check_post_conditions(c);
        }
}

TEST_CASE("fragments: operands follow their accumulator's rows and columns, warp by warp") {
  for (const int64_t k : {16, 80, 96, 112})
    for (const WarpGrid grid : {WarpGrid{2, 2, 1}, WarpGrid{4, 1, 1}, WarpGrid{1, 3, 2}}) {
      const int64_t m = 64, n = 96;
      const Layout c = mma_accumulator(m, n, grid);
      const Layout a = mma_operand_a(m, k, kMma16BitK16, grid);
      const Layout b = mma_operand_b(k, n, kMma16BitK16, grid);
      for (const Layout& operand : {a, b}) {
        check_post_conditions(operand);
        CHECK(operand.warps() == grid.m * grid.n * grid.copies);
      }
      CHECK(a.replication() == grid.n * grid.copies);
      CHECK(b.replication() == grid.m * grid.copies);
      for (int64_t warp = 0; warp < c.warps(); ++warp)
        CHECK((a.coordinate({.warp = warp})[0] == c.coordinate({.warp = warp})[0] &&
               b.coordinate({.warp = warp})[1] == c.coordinate({.warp = warp})[1]));
    }
}

TEST_CASE("fragments: extents that are no multiple are padded") {
  const Layout a = mma_operand_a(8, 40, kMma16BitK16, kOneWarp);
  CHECK(a.shape() == Coordinate{8, 40});
  CHECK(a.padded_shape() == Coordinate{16, 48});
  check_post_conditions(a);
  const Layout c = mma_accumulator(40, 20, {2, 2, 1});
  CHECK(c.padded_shape() == Coordinate{64, 32});
  check_post_conditions(c);
  CHECK(wgmma_accumulator(100, 8, 1).padded_shape() == Coordinate{128, 8});
}

TEST_CASE("fragments: warp policies") {
  CHECK(split_warps(WarpPolicy::Rows, 8, 16, 4) == WarpGrid{4, 1, 1});
  CHECK(split_warps(WarpPolicy::Columns, 8, 16, 4) == WarpGrid{1, 4, 1});
  CHECK(split_warps(WarpPolicy::Square, 8, 16, 4) == WarpGrid{2, 2, 1});
  CHECK(split_warps(WarpPolicy::Rows, 2, 16, 4) == WarpGrid{2, 1, 2});
  CHECK(split_warps(WarpPolicy::Square, 1, 10, 4) == WarpGrid{1, 2, 2});
  CHECK(split_warps(WarpPolicy::Square, 4, 11, 4) == WarpGrid{4, 1, 1});
  for (const WarpPolicy policy : {WarpPolicy::Rows, WarpPolicy::Columns, WarpPolicy::Square})
    for (int64_t m = 1; m <= 12; ++m)
      for (int64_t n = 1; n <= 24; ++n)
        for (int64_t warps = 1; warps <= 12; ++warps) {
          const WarpGrid grid = split_warps(policy, m, n, warps);
          CHECK_ALL(grid.m * grid.n * grid.copies == warps);
          CHECK_ALL((m % grid.m == 0 && n % grid.n == 0));
        }
}

TEST_CASE("fragments: an instruction that does not exist is a defect") {
  CHECK_THROWS_AS(mma_operand_a(16, 16, {2, 32}, kOneWarp), InternalError);
  CHECK_THROWS_AS(mma_operand_a(16, 16, {8, 4}, kOneWarp), InternalError);
  CHECK_THROWS_AS(mma_operand_b(16, 16, {3, 4}, kOneWarp), InternalError);
}

TEST_CASE("fragments: blocked layouts cover any tile once, or with copies only of the whole") {
  for (const Coordinate& shape :
       {Coordinate{}, Coordinate{1}, Coordinate{5}, Coordinate{64}, Coordinate{80},
        Coordinate{1000}, Coordinate{1, 1}, Coordinate{5, 7}, Coordinate{16, 40},
        Coordinate{64, 80}, Coordinate{64, 96}, Coordinate{128, 176}, Coordinate{3, 100},
        Coordinate{2, 6, 40}})
    for (const int64_t warps : {1, 3, 4, 12})
      for (const int bytes : {1, 2, 4, 8}) {
        const Layout layout = blocked(shape, warps, bytes);
        CHECK(layout.shape() == shape);
        CHECK(layout.warps() == warps);
        CHECK(layout.extent(Resource::Lane) == 32);
        check_post_conditions(layout);
      }
}

TEST_CASE("fragments: blocked layouts use whole vectors and no padding where factors fit") {
  const struct {
    Coordinate shape;
    int64_t warps;
    int bytes;
    int64_t vector, registers;
  } cases[] = {{{64, 128}, 4, 2, 8, 64}, {{64, 96}, 4, 2, 8, 48}, {{64, 80}, 4, 2, 8, 40},
               {{64, 176}, 4, 4, 4, 88}, {{128}, 4, 4, 1, 1},     {{64, 8}, 4, 2, 4, 4},
               {{96, 64}, 12, 2, 8, 16}, {{16, 112}, 1, 1, 8, 56}};
  for (const auto& c : cases) {
    const Layout layout = blocked(c.shape, c.warps, c.bytes);
    INFO(str(layout));
    CHECK_FALSE(layout.is_padded());
    CHECK(layout.is_injective());
    CHECK(layout.registers() == c.registers);
    // The vector: registers 0 … v-1 of every thread, from an aligned column on.
    for_each_place(layout, [&](const Owner& o) {
      const Owner first{.reg = o.reg / c.vector * c.vector, .lane = o.lane, .warp = o.warp};
      Coordinate expected = layout.coordinate(first);
      CHECK_ALL(expected.back() % c.vector == 0);
      expected.back() += o.reg % c.vector;
      CHECK_ALL(layout.coordinate(o) == expected);
    });
  }
  CHECK(blocked({64}, 4, 4).replication() == 2);
  CHECK(blocked({80}, 4, 4).padded_shape() == Coordinate{128});
}

TEST_CASE("fragments: a replicated tile is whole in every thread") {
  const Layout layout = replicated({3, 5}, 4);
  CHECK(layout.registers() == 15);
  CHECK(layout.replication() == 128);
  for (int64_t reg = 0; reg < 15; ++reg)
    CHECK(layout.coordinate({.reg = reg, .lane = 7, .warp = 3}) == Coordinate{reg / 5, reg % 5});
  check_post_conditions(layout);
}
