#include "ir/layout/matrix_move.h"

#include <numeric>

#include "ir/layout/access.h"
#include "ir/layout/banks.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"
#include "tests/ir/layout_checks.h"

using namespace kiln;

namespace {

using Registers = std::vector<std::vector<int64_t>>;  // by lane, then element register

// ldmatrix as the PTX ISA defines it: `memory[o]` is the value of the element at offset o, `rows`
// the offset at which each lane points. Elements of a lane, 32-bit register by 32-bit register.
Registers ldmatrix(const std::vector<int64_t>& memory, const std::vector<int64_t>& rows, int count,
                   bool trans, int bytes) {
  Registers result(32);
  for (size_t lane = 0; lane < 32; ++lane)
    for (int j = 0; j < count; ++j)
      for (int byte = 0; byte < 4; byte += bytes) {
        const int half = byte / 2;
        const size_t row = trans ? lane % 4 * 2 + static_cast<size_t>(half) : lane / 4;
        const size_t column_bytes = trans ? lane / 4 * 2 : lane % 4 * 4 + static_cast<size_t>(byte);
        const int64_t start = rows[static_cast<size_t>(j) * 8 + row];
        result[lane].push_back(
            memory.at(static_cast<size_t>(start) + column_bytes / static_cast<size_t>(bytes)));
      }
  return result;
}

// Loads the fragment by its plan and compares each register with the element it should hold. The
// values in memory are the elements' offsets in a row-major tile.
void check_loads(const Layout& fragment, const Layout& shared, int bytes,
                 std::pair<int, bool> expected) {
  INFO(str(fragment) << "\n" << str(shared));
  const auto move = plan_matrix_move(fragment, shared, bytes);
  REQUIRE(move);
  CHECK(move->count == expected.first);
  CHECK(move->transposed == expected.second);

  const Layout names = row_major(shared.padded_shape());
  std::vector<int64_t> memory(static_cast<size_t>(shared.extent(Resource::Offset)), -1);
  for_each_coordinate(shared.padded_shape(), [&](const Coordinate& c) {
    memory[static_cast<size_t>(shared.owner(c).offset)] = names.owner(c).offset;
  });

  const int64_t chunk = 16 / bytes, step = move->count * 4 / bytes;
  CHECK(move->rows.registers() * step == fragment.registers());
  const Layout chunks = in_vectors(shared, move->axis, chunk);
  const auto steps = offset_steps(move->rows, chunks);
  REQUIRE(steps);
  for (int64_t warp = 0; warp < fragment.warps(); ++warp)
    for (int64_t s = 0; s < move->rows.registers(); ++s) {
      std::vector<int64_t> offsets, addresses;
      for (int64_t lane = 0; lane < 32; ++lane) {
        const Coordinate base = move->rows.coordinate({.lane = lane, .warp = warp});
        const OffsetStep& change = (*steps)[static_cast<size_t>(s)];
        const int64_t at = (chunks.owner(base).offset ^ change.flip) + change.add;
        offsets.push_back(at * chunk);
        addresses.push_back(lane < 8 * move->count ? at * 16 : kInactive);
      }
      const Registers loaded = ldmatrix(memory, offsets, move->count, move->transposed, bytes);
      for (int64_t lane = 0; lane < 32; ++lane)
        for (int64_t i = 0; i < step; ++i) {
          const Owner owner{.reg = s * step + i, .lane = lane, .warp = warp};
          CHECK_ALL(loaded[static_cast<size_t>(lane)][static_cast<size_t>(i)] ==
                    names.owner(fragment.coordinate(owner)).offset);
        }
      CHECK_ALL(wavefronts(addresses, 16) == move->count);  // no bank conflict
    }
}

Layout stored_as_nk(const Layout& b) {
  return permute_axes(b, {1, 0});
}

}  // namespace

TEST_CASE("matrix move: operands load from swizzled tiles, every lane the right element") {
  for (const int64_t k : {16, 32, 48, 64, 80, 96, 112, 128, 176}) {
    check_loads(mma_operand_a(64, k, kMma16BitK16, {2, 2, 1}), shared_tile({64, k}, 2), 2,
                {4, false});
    // K of attention, [n, k]; and V, [k, n].
    check_loads(stored_as_nk(mma_operand_b(k, 64, kMma16BitK16, {2, 2, 1})),
                shared_tile({64, k}, 2), 2, {4, false});
    check_loads(mma_operand_b(64, k, kMma16BitK16, {4, 1, 1}), shared_tile({64, k}, 2), 2,
                {4, true});
  }
}

TEST_CASE("matrix move: 8-bit and tf32 operands load as pieces of four bytes") {
  for (const int64_t k : {32, 64, 96, 160})
    for (const bool is_a : {true, false})
      check_loads(is_a ? mma_operand_a(32, k, kMma8Bit, {2, 1, 1})
                       : stored_as_nk(mma_operand_b(k, 32, kMma8Bit, {1, 2, 1})),
                  shared_tile({32, k}, 1), 1, {4, false});
  for (const int64_t k : {8, 24, 40, 64})
    check_loads(mma_operand_a(32, k, kMmaTf32, {2, 1, 1}), shared_tile({32, k}, 4), 4, {4, false});
}

TEST_CASE("matrix move: accumulators of 16-bit elements store, also by wgmma's warps") {
  for (const int64_t n : {16, 64, 80, 96, 176}) {
    check_loads(mma_accumulator(64, n, {4, 1, 1}), shared_tile({64, n}, 2), 2, {4, false});
    check_loads(wgmma_accumulator(128, n, 2), shared_tile({128, n}, 2), 2, {4, false});
  }
}

TEST_CASE("matrix move: the address recipes of the instructions") {
  const auto lane_rows = [](const Layout& fragment, const Layout& shared) {
    const auto move = plan_matrix_move(fragment, shared, 2);
    REQUIRE(move);
    std::vector<Coordinate> rows;
    for (int64_t lane = 0; lane < 32; ++lane) {
      rows.push_back(move->rows.coordinate({.lane = lane}));
      rows.back()[static_cast<size_t>(move->axis)] *= 8;
    }
    return rows;
  };
  const Layout tile = swizzled({16, 16}, 2, 32);
  const auto a = lane_rows(mma_operand_a(16, 16, kMma16BitK16, {}), tile);
  const auto k = lane_rows(stored_as_nk(mma_operand_b(16, 16, kMma16BitK16, {})), tile);
  const auto v = lane_rows(mma_operand_b(16, 16, kMma16BitK16, {}), tile);
  for (int64_t lane = 0; lane < 32; ++lane) {
    const auto l = static_cast<size_t>(lane);
    CHECK(a[l] == Coordinate{lane % 16, lane / 16 * 8});
    CHECK(k[l] == Coordinate{lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8});
    CHECK(v[l] == Coordinate{lane % 16, lane / 16 * 8});
  }
}

TEST_CASE("matrix move: fewer matrices when there are fewer registers") {
  check_loads(mma_operand_a(16, 8, kMma16BitK8, {}), swizzled({16, 16}, 2, 32).crop({16, 16}), 2,
              {2, false});
  check_loads(stored_as_nk(mma_operand_b(8, 8, kMma16BitK8, {})), swizzled({8, 16}, 2, 32), 2,
              {1, false});
  // 88 columns are 11 tiles: pairs of registers.
  check_loads(mma_operand_b(64, 88, kMma16BitK16, {}), row_major({64, 88}, 88), 2, {2, true});
}

TEST_CASE("matrix move: rows with an odd number of chunks are free of conflicts too") {
  for (const int64_t k : {16, 64, 80})
    check_loads(mma_operand_a(32, k, kMma16BitK16, {}), row_major({32, k}, padded_pitch(k, 2)), 2,
                {4, false});
}

TEST_CASE("matrix move: what ldmatrix cannot do has no plan") {
  const Layout tile = swizzled({64, 64}, 2, 128);
  const Layout a = mma_operand_a(64, 64, kMma16BitK16, {4, 1, 1});
  CHECK(plan_matrix_move(a, tile, 2));
  CHECK_FALSE(plan_matrix_move(a, row_major({64, 64}, 68), 2));     // rows not 16-byte aligned
  CHECK_FALSE(plan_matrix_move(blocked({64, 64}, 4, 2), tile, 2));  // a lane has whole chunks
  CHECK_FALSE(plan_matrix_move(mma_accumulator(64, 64, {4, 1, 1}), swizzled({64, 64}, 4, 128), 4));
  CHECK_FALSE(plan_matrix_move(mma_operand_b(64, 64, kMma8Bit, {4, 1, 1}),
                               swizzled({64, 64}, 1, 64), 1));  // .trans is for 16 bits
  CHECK_FALSE(plan_matrix_move(mma_operand_a(8, 64, kMma16BitK16, {}), swizzled({8, 64}, 2, 128),
                               2));  // rows beyond the tile
  CHECK_FALSE(plan_matrix_move(tile, tile, 2));
  Atom twisted;  // odd rows begin two columns later
  twisted[Resource::Reg] = {{0, 1}};
  twisted[Resource::Lane] = {{0, 2}, {0, 4}, {1, 2}, {2, 0}, {4, 0}};
  CHECK_FALSE(plan_matrix_move(Layout(2, twisted), row_major({8, 8}), 2));
}
