// Block masks: builders, conversions, densities.
#include "kernels/masks.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "ir/error.h"

using namespace kiln;

namespace {

Array scores_of(int64_t rows, int64_t cols, const std::vector<double>& values, DType dtype = F32) {
  return Array(dtype, {1, 1, rows, cols}, values);
}
using Cells = std::vector<double>;

}  // namespace

TEST_CASE("top-k takes the largest, of equal ones the lower index, NaN last", "[masks]") {
  Array scores = scores_of(1, 5, {3, 5, 5, NAN, -INFINITY});
  CHECK(top_k_mask(scores, 0).values() == Cells{0, 0, 0, 0, 0});
  CHECK(top_k_mask(scores, 1).values() == Cells{0, 1, 0, 0, 0});
  CHECK(top_k_mask(scores, 2).values() == Cells{0, 1, 1, 0, 0});
  CHECK(top_k_mask(scores, 3).values() == Cells{1, 1, 1, 0, 0});
  CHECK(top_k_mask(scores, 4).values() == Cells{1, 1, 1, 1, 0});  // NaN is -inf and comes first
  CHECK(top_k_mask(scores, 9).values() == Cells{1, 1, 1, 1, 1});
  CHECK(top_k_mask(scores_of(1, 3, {-0.0, 0.0, -1}), 1).values() == Cells{1, 0, 0});
  CHECK_THROWS_AS(top_k_mask(scores, -1), UserError);
  CHECK_THROWS_WITH(top_k_mask(Array(F32, {2, 2}), 1), Catch::Contains("expected shape"));
}

TEST_CASE("a threshold is strict", "[masks]") {
  Array scores = scores_of(1, 4, {0.5, 0.4999, 0.5001, NAN});
  CHECK(threshold_mask(scores, 0.5).values() == Cells{0, 0, 1, 0});
  CHECK(threshold_mask(scores, -INFINITY).values() == Cells{1, 1, 1, 0});
  CHECK_THROWS_AS(threshold_mask(scores, NAN), UserError);
}

TEST_CASE("top-k of several rows and heads goes row by row", "[masks]") {
  Array scores(F16, {2, 1, 2, 2}, Cells{1, 2, 4, 3, 0, -1, -2, -1});
  CHECK(top_k_mask(scores, 1).values() == Cells{0, 1, 1, 0, 1, 0, 0, 1});
}

TEST_CASE("trimming leaves the lower triangle, bottom-right aligned", "[masks]") {
  auto trimmed = [](BlockGrid grid) {
    Array mask(Bool, {1, 1, grid.rows(), grid.cols()}, Cells(grid.rows() * grid.cols(), 1));
    trim(mask, grid);
    return mask.values();
  };
  CHECK(trimmed({192, 192, 64, true}) == Cells{1, 0, 0, 1, 1, 0, 1, 1, 1});
  CHECK(trimmed({192, 192, 64, false}) == Cells(9, 1));
  CHECK(trimmed({64, 192, 64, true}) == Cells{1, 1, 1});
  CHECK(trimmed({64, 191, 64, true}) == Cells{1, 1, 1});
  CHECK(trimmed({128, 64, 64, true}) == Cells{0, 1});
  CHECK(trimmed({130, 66, 64, true}) == Cells{0, 0, 1, 0, 1, 1});
  CHECK(trimmed({64, 64, {32, 16}, true}) == Cells{1, 1, 0, 0, 1, 1, 1, 1});
}

TEST_CASE("the last two rows can be set whole", "[masks]") {
  Array mask(Bool, {1, 1, 3, 2});
  set_last_rows(mask);
  CHECK(mask.values() == Cells{0, 0, 1, 1, 1, 1});
  Array single(Bool, {1, 1, 1, 2});
  set_last_rows(single);
  CHECK(single.values() == Cells{1, 1});
}

TEST_CASE("the rows of a mask that a call after history takes", "[masks]") {
  for (DType dtype : {Bool, I8}) {
    Array mask(dtype, {2, 3, 5, 4});
    for (int64_t i = 0; i < mask.size(); ++i) mask.set(i, i % 7 == 0 || i % 5 == 0);
    const Array rest = slice_rows(mask, 96, 32);
    REQUIRE(rest.shape() == Shape{2, 3, 2, 4});
    REQUIRE(rest.dtype() == dtype);
    for (int64_t head = 0; head < 6; ++head)
      for (int64_t at = 0; at < 8; ++at)
        REQUIRE(rest.get(head * 8 + at) == mask.get(head * 20 + 12 + at));
    CHECK(slice_rows(mask, 0, 32).values() == mask.values());
    CHECK(slice_rows(mask, 160, 32).size() == 0);
    for (int64_t past : {-32, 16, 192})
      CHECK_THROWS_WITH(slice_rows(mask, past, 32),
                        Catch::Contains("past: expected a multiple of the block 32 from 0 to 5"));
  }
  CHECK_THROWS_WITH(slice_rows(Array(I32, {1, 1, 1, 1}), 0, 32), Catch::Contains("bool or i8"));
}

TEST_CASE("random masks keep the diagonal and hit the density", "[masks]") {
  BlockGrid grid{1024, 1024, 64, true};
  for (double density : {0.0, 0.25, 0.5, 1.0}) {
    Array mask = random_mask(1, 2, grid, density, 5);
    BlockCount blocks = count_blocks(mask.view(), grid);
    CHECK(blocks.visible == 2 * 16 * 17 / 2);
    int64_t wanted = 2 * std::llround(density * 16 * 17 / 2);
    CHECK(blocks.selected == std::max<int64_t>(wanted, 2 * 16));
    for (int64_t r = 0; r < 16; ++r) {
      CHECK(mask.get(r * 16 + r) == 1);
      for (int64_t c = r + 1; c < 16; ++c) CHECK(mask.get(r * 16 + c) == 0);
    }
  }
  CHECK(random_mask(1, 2, grid, 0.3, 5).values() == random_mask(1, 2, grid, 0.3, 5).values());
  CHECK(random_mask(1, 2, grid, 0.3, 5).values() != random_mask(1, 2, grid, 0.3, 6).values());
  CHECK_THROWS_AS(random_mask(1, 1, grid, 1.5, 5), UserError);
}

TEST_CASE("masks to lists and back", "[masks]") {
  Array mask = random_mask(2, 3, {200, 300, {32, 16}, false}, 0.3, 8);
  BlockLists lists = to_lists(mask);
  CHECK(from_lists(lists.counts.view(), lists.indices.view(), mask.shape()[3]).values() ==
        mask.values());
  BlockLists small = to_lists(Array(Bool, {1, 1, 2, 3}, Cells{0, 0, 0, 1, 0, 1}));
  CHECK(small.counts.values() == Cells{0, 2});
  CHECK(small.indices.values() == Cells{-1, -1, 0, 2});
}

TEST_CASE("pooled scores prefer the block of the key that fits", "[masks]") {
  BlockGrid grid{64, 64, 16, true};
  Array q(F32, {1, 2, 64, 16}), k(F32, {1, 1, 64, 16});
  for (int64_t i = 0; i < q.size(); ++i) q.set(i, 1);
  for (int64_t d = 0; d < 16; ++d) k.set(20 * 16 + d, 30);
  Array scores = pooled_scores(q.view(), k.view(), grid, 0.25);
  Array best = top_k_mask(scores, 1);
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t r = 1; r < 4; ++r) CHECK(best.get((h * 4 + r) * 4 + 1) == 1);
  CHECK(scores.get(0) == 1);  // row 0 sees block 0 alone
  CHECK(scores.get(1) == 0);
}
