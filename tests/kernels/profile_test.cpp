// Thresholds a head, from texts.
#include "kernels/xattention/profile.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "ir/error.h"
#include "kernels/xattention/xattention.h"
#include "tests/kernels/attention_case.h"

using namespace kiln;
using Catch::Matchers::Contains;
using Cells = std::vector<double>;

TEST_CASE("thresholds by hand", "[profile]") {
  // Row 0: blocks 2 and 0 have 0.95 of the full mass; the least estimate there is 1 (block 0), and
  // all of the estimate but 0.5 is not below it: 4.5 / 5. Row 1: block 1 alone: 6 / 8.
  const Array full(F64, {1, 1, 2, 3}, Cells{0.35, 0.05, 0.6, 0.03, 0.94, 0.03});
  const Array estimated(F64, {1, 1, 2, 3}, Cells{1, 0.5, 3.5, 1, 6, 1});
  const std::array texts = {ProfiledText{full, estimated}};
  CHECK(profile_thresholds(texts)[0] == Approx((4.5 + 6) / (5 + 8)));
  CHECK(profile_thresholds(texts, 1.0)[0] == Approx(1));
  // The largest over texts.
  const Array worse(F64, {1, 1, 2, 3}, Cells{1, 1, 1, 1, 1, 1});
  const std::array more = {ProfiledText{full, estimated}, ProfiledText{full, worse}};
  CHECK(profile_thresholds(more)[0] == Approx(1));
  // Of a head without any sums nothing is known: all.
  const Array none(F64, {1, 2, 1, 1});
  const std::array nothing = {ProfiledText{none, none}};
  CHECK(profile_thresholds(nothing) == Cells{1, 1});
}

TEST_CASE("with its threshold a head chooses what full attention needs", "[profile]") {
  // As one threshold for all rows, the share is a mean: what it chooses has the mass on average,
  // and in every row if rows are alike. Here each row is alike.
  std::mt19937_64 random(test::run_seed());
  std::uniform_real_distribution<double> uniform(0.01, 1);
  for (int round = 0; round < 20; ++round) {
    const int64_t cols = 12;
    Array full(F64, {1, 2, 3, cols}), estimated(F64, {1, 2, 3, cols});
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t c = 0; c < cols; ++c) {
        const double mass = uniform(random), near = mass * uniform(random);
        for (int64_t r = 0; r < 3; ++r) {
          full.set((h * 3 + r) * cols + c, mass);
          estimated.set((h * 3 + r) * cols + c, near);
        }
      }
    const std::array texts = {ProfiledText{full, estimated}};
    const std::vector<double> thresholds = profile_thresholds(texts);
    for (int64_t h = 0; h < 2; ++h) {
      std::vector<double> row;
      double all = 0, chosen = 0;
      for (int64_t c = 0; c < cols; ++c) row.push_back(estimated.get(h * 3 * cols + c));
      SelectConfig config;
      config.causal = false;
      RowChoice place;
      place.visible = cols;
      place.amount = thresholds[static_cast<size_t>(h)] * (1 - 1e-12);
      const std::vector<bool> is = choose_row(config, row, place);
      for (int64_t c = 0; c < cols; ++c) {
        all += full.get(h * 3 * cols + c);
        if (is[static_cast<size_t>(c)]) chosen += full.get(h * 3 * cols + c);
      }
      CHECK(chosen >= 0.9 * all * (1 - 1e-9));
    }
  }
}

TEST_CASE("sums of full attention add up to a block's queries", "[profile]") {
  std::mt19937_64 random(test::run_seed());
  Array q(F32, {1, 2, 70, 8}), k(F32, {1, 1, 90, 8});
  test::fill_normal(q, random);
  test::fill_normal(k, random);
  const BlockGrid grid{70, 90, 32, true};
  const Array sums = full_block_sums(q.view(), k.view(), grid, 0.3);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t r = 0; r < 3; ++r) {
      double total = 0;
      for (int64_t c = 0; c < 3; ++c) total += sums.get((h * 3 + r) * 3 + c);
      CHECK(total == Approx(r < 2 ? 32 : 6));
      for (int64_t c = grid.visible_cols(r); c < 3; ++c) CHECK(sums.get((h * 3 + r) * 3 + c) == 0);
    }
  // One key has all of it.
  Array far(F32, {1, 1, 90, 8}), one(F32, {1, 1, 70, 8});
  test::fill(one, 1);
  for (int64_t d = 0; d < 8; ++d) far.set(5 * 8 + d, 40);
  CHECK(full_block_sums(one.view(), far.view(), grid, 1).get(0) == Approx(32));
}

TEST_CASE("texts that are none", "[profile][errors]") {
  const Array full(F64, {1, 2, 2, 3}), other(F64, {1, 2, 2, 4}), heads(F64, {1, 1, 2, 3}),
      bytes(I8, {1, 2, 2, 3});
  const auto fails = [&](const char* sentence, const ProfiledText& first,
                         const ProfiledText& second, double mass = 0.9) {
    const std::array texts = {first, second};
    CHECK_THROWS_WITH(profile_thresholds(texts, mass), Contains(sentence));
  };
  fails("estimated: expected shape [1, 2, 2, 3], as full has, got [1, 2, 2, 4]", {full, full},
        {full, other});
  fails("full: expected floats [batch, 2, rows, cols], got f64 [1, 1, 2, 3]", {full, full},
        {heads, heads});
  fails("estimated: expected floats [batch, 2, rows, cols], got i8", {full, bytes}, {full, full});
  fails("mass: expected above 0, at most 1, got 0", {full, full}, {full, full}, 0);
  const Array unknown(F64, {1, 2, 1, 1}, Cells{NAN, 1}), one(F64, {1, 2, 1, 1}, Cells{1, 1});
  fails("estimated: expected finite sums of 0 or more, got nan at element 0", {one, one},
        {one, unknown});
  Array q(F32, {1, 3, 8, 4}), k(F32, {1, 2, 8, 4});
  const auto sums = [&](const char* sentence, const BlockGrid& grid) {
    CHECK_THROWS_WITH(full_block_sums(q.view(), k.view(), grid, 1), Contains(sentence));
  };
  sums("heads: expected a multiple of the 2 heads of k, got 3", {8, 8, 4, false});
  sums("q: expected shape [1, 3, 9, 4], got [1, 3, 8, 4]", {9, 8, 4, false});
  sums("k: expected shape [1, 2, 9, 4], got [1, 2, 8, 4]", {8, 9, 4, false});
  sums("block: expected 1 or more queries by 1 or more keys, got 0", {8, 8, 0, false});
  CHECK_THROWS_WITH(profile_thresholds({}), Contains("texts: expected one or more, got none"));
}
