#include "ir/layout/shared.h"

#include "ir/error.h"
#include "ir/layout/access.h"
#include "ir/layout/banks.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "tests/ir/layout_checks.h"

using namespace kiln;

TEST_CASE("shared: row-major with and without padding") {
  for (const Coordinate& shape :
       {Coordinate{}, Coordinate{7}, Coordinate{5, 6}, Coordinate{16, 80}, Coordinate{2, 3, 10}})
    for (const int64_t pad : {0, 1, 8}) {
      const int64_t columns = shape.empty() ? 1 : shape.back();
      const Layout layout = row_major(shape, columns + pad);
      check_post_conditions(layout);
      for_each_coordinate(shape, [&](const Coordinate& c) {
        int64_t row = 0;
        for (size_t axis = 0; axis + 1 < shape.size(); ++axis) row = row * shape[axis] + c[axis];
        const int64_t column = c.empty() ? 0 : c.back();
        CHECK_ALL(layout.owner(c).offset == row * (columns + pad) + column);
      });
    }
  CHECK(padded_pitch(64, 2) == 72);
  CHECK(padded_pitch(40, 2) == 40);  // 5 chunks are odd already
  CHECK(padded_pitch(3, 2) == 8);
  CHECK_THROWS_AS(row_major({4, 8}, 7), InternalError);
}

TEST_CASE("shared: panels are what TMA writes") {
  for (const int bytes : {1, 2, 4, 8})
    for (const int panel : {128, 64, 32})
      for (const int64_t rows : {8, 24, 64, 80, 10})
        for (const int64_t panels : {1, 2, 3, 5}) {
          const int64_t width = panel / bytes, columns = width * panels;
          const Layout layout = swizzled({rows, columns}, bytes, panel);
          const int64_t padded_rows = (rows + 7) / 8 * 8;
          CHECK(layout.extent(Resource::Offset) == padded_rows * columns);
          for_each_coordinate({rows, columns}, [&](const Coordinate& c) {
            // The box of a panel, row by row; then the swizzle of the absolute address.
            const int64_t box = c[1] / width * padded_rows * panel;
            const int64_t address = box + c[0] * panel + c[1] % width * bytes;
            const int64_t mask = panel / 16 - 1;
            CHECK_ALL(layout.owner(c).offset * bytes == (address ^ ((address >> 7) & mask) << 4));
          });
        }
}

TEST_CASE("shared: the chunk table of the header") {
  for (int64_t row = 0; row < 8; ++row)
    for (int64_t chunk = 0; chunk < 8; ++chunk) {
      const auto at = [&](int panel) {
        return swizzled({8, panel / 2}, 2, panel).owner({row, chunk * 8}).offset * 2 % panel / 16;
      };
      CHECK(at(128) == (chunk ^ row % 8));
      if (chunk < 4) CHECK(at(64) == (chunk ^ row / 2 % 4));
      if (chunk < 2) CHECK(at(32) == (chunk ^ row / 4 % 2));
    }
  for (const int panel : {128, 64, 32})
    for (int64_t address = 0; address < 4096; ++address)
      CHECK_ALL(swizzle_address(swizzle_address(address, panel), panel) == address);
}

TEST_CASE("shared: chunks moved by any bits of the row") {
  const auto bit = [](int64_t row, int which) { return row >> which & 1; };
  for (const std::array<int, 3>& bits : {std::array{0, 1, 2}, kSwizzledPairs, std::array{2, 3, 4}})
    for (const int bytes : {1, 2, 4, 8})
      for (const int64_t rows : {8, 64, 6})
        for (const int64_t panels : {1, 3}) {
          const Layout layout = swizzled_by({rows, panels * 128 / bytes}, bytes, bits);
          check_post_conditions(layout);
          for (int64_t row = 0; row < rows; ++row)
            for (int64_t chunk = 0; chunk < 8; ++chunk) {
              const int64_t flips =
                  bit(row, bits[0]) + 2 * bit(row, bits[1]) + 4 * bit(row, bits[2]);
              CHECK_ALL(layout.owner({row, chunk * 16 / bytes}).offset * bytes % 128 ==
                        (chunk ^ flips) * 16);
            }
        }
  CHECK(swizzled_by({64, 96}, 4, {0, 1, 2}) == swizzled({64, 96}, 4, 128));
}

TEST_CASE("access: accumulators of 32 bits into pairs of chunks without conflicts") {
  const Layout tile = swizzled_by({64, 96}, 4, kSwizzledPairs), rows = blocked({64, 96}, 4, 4);
  const Layout accumulator = mma_accumulator(64, 96, {4, 1, 1});
  const int64_t bytes = 64 * 96 * 4 / 4;  // of a warp
  CHECK(access_wavefronts(accumulator, tile, 1, 2, 4) == bytes / 128);
  CHECK(access_wavefronts(rows, tile, 1, 4, 4) == bytes / 128);
  CHECK(access_wavefronts(accumulator, shared_tile({64, 96}, 4), 1, 2, 4) > bytes / 128);
  // A column of eight rows, one to a lane.
  const Layout column = Layout(2).repeat(Resource::Lane, 8, 0).repeat(Resource::Reg, 4, 1);
  CHECK(access_wavefronts(column, swizzled_by({8, 32}, 4, kSwizzledPairs), 1, 4, 4) == 1);
}

TEST_CASE("shared: the widest panel that divides a row") {
  CHECK(panel_bytes(128, 2) == 128);
  CHECK(panel_bytes(96, 2) == 64);   // 3 panels
  CHECK(panel_bytes(80, 2) == 32);   // 5 panels
  CHECK(panel_bytes(112, 2) == 32);  // 7 panels
  CHECK(panel_bytes(176, 2) == 32);
  CHECK(panel_bytes(40, 2) == 0);
  CHECK(shared_tile({64, 40}, 2) == row_major({64, 40}, 40));
  CHECK(shared_tile({64, 96}, 2) == swizzled({64, 96}, 2, 64));
  CHECK(shared_tile({64}, 2) == row_major({64}));
  CHECK(shared_tile({3, 1, 128}, 2) == row_major({3, 1, 128}, 136));  // one row, not eight
  CHECK(shared_tile({8, 128}, 2) == swizzled({8, 128}, 2, 128));
  CHECK(swizzle_alignment(64) == 512);
  CHECK_THROWS_AS(swizzled({8, 8}, 2, 48), InternalError);
  CHECK_THROWS_AS(swizzled({8}, 2, 32), InternalError);
}

TEST_CASE("shared: swizzled tiles of several shapes have their post-conditions") {
  for (const Coordinate& shape : {Coordinate{8, 16}, Coordinate{10, 20}, Coordinate{24, 96},
                                  Coordinate{3, 16, 80}, Coordinate{2, 2, 8, 32}})
    for (const int panel : {128, 64, 32}) check_post_conditions(swizzled(shape, 2, panel));
}

TEST_CASE("banks: wavefronts of known patterns") {
  std::vector<int64_t> addresses(32);
  const auto fill = [&](auto of_lane) {
    for (int64_t lane = 0; lane < 32; ++lane) addresses[static_cast<size_t>(lane)] = of_lane(lane);
  };
  fill([](int64_t lane) { return lane * 4; });
  CHECK(wavefronts(addresses, 4) == 1);
  fill([](int64_t lane) { return lane * 8; });  // even banks only
  CHECK(wavefronts(addresses, 4) == 2);
  CHECK(wavefronts(addresses, 8) == 2);
  CHECK(least_wavefronts(addresses, 8) == 2);
  fill([](int64_t lane) { return lane * 128; });  // one bank
  CHECK(wavefronts(addresses, 4) == 32);
  CHECK(wavefronts(addresses, 16) == 32);
  CHECK(least_wavefronts(addresses, 16) == 4);
  fill([](int64_t) { return 64; });  // broadcast
  CHECK(wavefronts(addresses, 4) == 1);
  fill([](int64_t lane) { return lane * 2; });  // two lanes a word
  CHECK(wavefronts(addresses, 2) == 1);
  fill([](int64_t lane) { return lane * 16; });
  CHECK(wavefronts(addresses, 16) == 4);
  fill([](int64_t lane) { return lane < 4 ? lane * 128 : kInactive; });
  CHECK(wavefronts(addresses, 4) == 4);
  CHECK(wavefronts(addresses, 16) == 4);
  CHECK(least_wavefronts(addresses, 16) == 1);
  fill([](int64_t) { return kInactive; });
  CHECK(wavefronts(addresses, 4) == 0);
}

TEST_CASE("access: 16-byte rows are stored into panels without conflicts") {
  for (const int64_t columns : {32, 64, 80, 96, 112, 128, 176, 256}) {
    const Layout shared = shared_tile({64, columns}, 2);
    const Layout fragment = blocked({64, columns}, 4, 2);
    CHECK(access_width(fragment, shared, 1, 8) == 8);
    const int64_t vectors = fragment.registers() / 8;
    for (int64_t warp = 0; warp < 4; ++warp)
      CHECK(access_wavefronts(fragment, shared, 1, 8, 2, warp) == 4 * vectors);
  }
}

TEST_CASE("access: a thread's registers are constants away from its first") {
  const auto check = [](const Layout& fragment, const Layout& shared, bool expected) {
    INFO(str(fragment) << "\n" << str(shared));
    const auto steps = offset_steps(fragment, shared);
    CHECK(steps.has_value() == expected);
    if (!steps) return;
    CHECK(static_cast<int64_t>(steps->size()) == fragment.registers());
    for_each_place(fragment, [&](const Owner& o) {
      const Owner first{.lane = o.lane, .warp = o.warp};
      const OffsetStep& step = (*steps)[static_cast<size_t>(o.reg)];
      const int64_t base = shared.owner(fragment.coordinate(first)).offset;
      CHECK_ALL((base ^ step.flip) + step.add == shared.owner(fragment.coordinate(o)).offset);
    });
  };
  for (const int64_t columns : {32, 64, 80, 96, 112, 128, 176})
    for (const Layout& shared : {shared_tile({64, columns}, 2), row_major({64, columns}),
                                 row_major({64, columns}, columns + 8)}) {
      // Half of the columns to a warp: bits of a swizzle only if that is a power of two.
      const bool halves =
          owner_formula(shared, Resource::Offset).is_sum() || (columns & (columns - 1)) == 0;
      check(blocked({64, columns}, 4, 2), shared, true);
      check(mma_accumulator(64, columns, {2, 2, 1}), shared, halves);
      check(mma_operand_a(64, columns, kMma16BitK16, {2, 2, 1}), shared, true);
      check(wgmma_accumulator(64, columns, 1), shared, true);
    }
  // A part of a tile: 48 of 64 columns, whose k-steps change bits of the swizzle.
  check(mma_operand_a(64, 48, kMma16BitK16, {4, 1, 1}), swizzled({64, 64}, 2, 128), true);
  // Warps 24 columns apart, registers 8 apart: the sum carries into bits that the swizzle moves.
  check(mma_accumulator(64, 48, {2, 2, 1}), swizzled({64, 64}, 2, 128), false);
  // A gap after each pattern: what is added has bits that the swizzle flips.
  check(mma_operand_a(32, 64, kMma16BitK16, {2, 1, 1}),
        swizzled({8, 64}, 2, 128).with_pitch(576).repeat(Resource::Offset, 4, 0), false);
  // Columns in threes between the rows: 1 and 2 carry.
  check(Layout(2)
            .repeat(Resource::Reg, 2, 1)
            .repeat(Resource::Lane, 2, 1)
            .repeat(Resource::Reg, 2, 0),
        Layout(2)
            .repeat(Resource::Offset, 3, 1)
            .repeat(Resource::Offset, 2, 0)
            .repeat(Resource::Offset, 4, 1),
        false);
  // Padding beyond the shared tile.
  check(mma_operand_a(8, 64, kMma16BitK16, {1, 1, 1}), swizzled({8, 64}, 2, 128), false);
}

TEST_CASE("shared tiles: a fragment that begins at any multiple of its origins", "[long]") {
  const auto check = [](const Layout& fragment, const Layout& shared, const Coordinate& origins,
                        bool expected) {
    INFO(str(fragment) << "\n" << str(shared) << "\norigins " << tuple_text(origins));
    const auto steps = offset_steps(fragment, shared, origins);
    REQUIRE(steps.has_value() == expected);
    if (!steps) return;
    const Coordinate needed = fragment.padded_shape(), stored = shared.padded_shape();
    for_each_coordinate(stored, [&](const Coordinate& begin) {
      for (size_t axis = 0; axis < begin.size(); ++axis) {
        const bool starts = origins[axis] ? begin[axis] % origins[axis] == 0 : begin[axis] == 0;
        if (!starts || begin[axis] + needed[axis] > stored[axis]) return;
      }
      for_each_place(fragment, [&](const Owner& o) {
        const auto offset = [&](const Owner& owner) {
          Coordinate c = fragment.coordinate(owner);
          for (size_t axis = 0; axis < c.size(); ++axis) c[axis] += begin[axis];
          return shared.owner(c).offset;
        };
        const OffsetStep& step = (*steps)[static_cast<size_t>(o.reg)];
        const int64_t base = offset({.lane = o.lane, .warp = o.warp});
        CHECK_ALL((base ^ step.flip) + step.add == offset(o));
      });
    });
  };
  const Layout a = mma_operand_a(16, 32, kMma16BitK16, {1, 1, 1});
  for (const int64_t columns : {64, 96, 128}) {
    check(a, shared_tile({64, columns}, 2), {16, 32}, true);
    check(a, shared_tile({64, columns}, 2), {8, 0}, true);
    check(a, row_major({64, columns}), {1, 2}, true);
  }
  // One of several stages.
  check(insert_axis(a, 0), shared_tile({3, 16, 32}, 2), {1, 0, 0}, true);
  // From column 16 on, the registers' 16 columns more carry into those of the beginning.
  check(a, shared_tile({64, 64}, 2), {0, 16}, false);
}

TEST_CASE("shared tiles: only what a swizzle moves is flipped") {
  const Layout shared = shared_tile({64, 64}, 2);  // one atom, of panels of 128 bytes
  const auto steps = offset_steps(mma_operand_a(64, 64, kMma16BitK16, {2, 1, 1}), shared);
  REQUIRE(steps);
  for (const OffsetStep& step : *steps) CHECK(step.flip < 64);
}
