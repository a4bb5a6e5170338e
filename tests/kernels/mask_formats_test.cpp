// Conversions of block masks: nothing lost, mistakes named.
#include "kernels/mask_formats.h"

#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <random>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"

using namespace kiln;
using Catch::Matchers::Contains;
using Cells = std::vector<double>;

namespace {

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Array random_mask(std::mt19937_64& random, const Shape& shape, DType dtype = Bool) {
  const double densities[] = {0, 0.1, 0.5, 1};
  std::bernoulli_distribution coin(densities[draw(random, 0, 3)]);
  Array mask(dtype, shape);
  for (int64_t i = 0; i < mask.size(); ++i) mask.set(i, coin(random));
  return mask;
}

Shape random_shape(std::mt19937_64& random) {
  return {draw(random, 1, 2), draw(random, 1, 3), draw(random, 0, 9), draw(random, 0, 140)};
}

Array i32(const Shape& shape, const Cells& values) {
  return Array(I32, shape, values);
}

void fails(const char* sentence, const std::function<void()>& call) {
  INFO(sentence);
  CHECK_THROWS_WITH(call(), Contains(sentence));
  CHECK_THROWS_AS(call(), UserError);
}

}  // namespace

TEST_CASE("masks come back from every format", "[formats]") {
  std::mt19937_64 random(test::run_seed());
  for (int round = 0; round < 60; ++round) {
    const Array mask = random_mask(random, random_shape(random), round % 5 ? Bool : I8);
    const Cells cells = mask.values();
    const int64_t cols = mask.shape()[3];
    BlockCsr csr = to_csr(mask);
    CHECK(from_csr(csr.indptr.view(), csr.indices.view(), mask.shape()).values() == cells);
    Array bits = to_bits(mask);
    CHECK(from_bits(bits.view(), cols).values() == cells);
    CHECK(transposed(transposed(mask)).values() == cells);
    BlockLists lists = to_lists(mask);
    CHECK_NOTHROW(check_lists(lists.counts.view(), lists.indices.view(), cols));
    CHECK(from_lists(lists.counts.view(), lists.indices.view(), cols).values() == cells);
    // Some of it full.
    SplitMask split{mask, random_mask(random, mask.shape())};
    for (int64_t i = 0; i < mask.size(); ++i) split.full.set(i, mask.get(i) * split.full.get(i));
    FlexLists flex = to_flex(split);
    const SplitMask back = from_flex({flex.partial.counts.view(), flex.partial.indices.view(),
                                      flex.full.counts.view(), flex.full.indices.view()},
                                     mask.shape()[0], mask.shape()[1], cols);
    CHECK(back.mask.values() == cells);
    CHECK(back.full.values() == split.full.values());
  }
}

TEST_CASE("formats by hand", "[formats]") {
  const Array mask(Bool, {1, 1, 2, 66}, [] {
    Cells cells(132);
    cells[0] = cells[63] = cells[64] = cells[66 + 65] = 1;
    return cells;
  }());
  const BlockCsr csr = to_csr(mask);
  CHECK(csr.indptr.values() == Cells{0, 3, 4});
  CHECK(csr.indices.values() == Cells{0, 63, 64, 65});
  const Array bits = to_bits(mask);
  const auto words = bits.span<uint64_t>();
  CHECK(std::vector<uint64_t>(words.begin(), words.end()) ==
        std::vector<uint64_t>{uint64_t{1} << 63 | 1, 1, 0, 2});
  const Array small(Bool, {1, 1, 2, 3}, Cells{1, 0, 1, 0, 0, 1});
  CHECK(transposed(small).values() == Cells{1, 0, 0, 0, 1, 1});
}

TEST_CASE("CSR in any order, with 32-bit ends", "[formats]") {
  Array ends = i32({4}, {0, 2, 2, 3}), indices = i32({3}, {4, 1, 0});
  CHECK(from_csr(ends.view(), indices.view(), {1, 1, 3, 5}).values() ==
        Cells{0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0});
  const auto wrong = [&](const char* sentence, const Cells& ends, const Cells& columns) {
    Array e = i32({4}, ends), c = i32({static_cast<int64_t>(columns.size())}, columns);
    fails(sentence, [&] { from_csr(e.view(), c.view(), {1, 1, 3, 5}); });
  };
  wrong("indices: expected columns 0 to 4, got 5 in row 2 of batch 0, head 0", {0, 2, 2, 3},
        {4, 1, 5});  // the number of columns itself, which FlashInfer lets pass
  wrong("indices: expected columns 0 to 4, got -1 in row 0", {0, 2, 2, 3}, {4, -1, 0});
  wrong("indices: expected each column once, got 4 twice in row 0", {0, 2, 2, 3}, {4, 4, 0});
  wrong("indptr: expected 0 first, got 1", {1, 2, 2, 3}, {4, 1, 0});
  wrong("indptr: expected 3 last, the entries of indices, got 4", {0, 2, 2, 4}, {4, 1, 0});
  wrong("indptr: expected 2 to 3 after 2, got 1 behind row 1", {0, 2, 1, 3}, {4, 1, 0});
}

TEST_CASE("FlexAttention's lists are broadcast, and what is behind a count is not read",
          "[formats]") {
  Array counts = i32({1, 1, 2}, {1, 2}), indices = i32({1, 1, 2, 3}, {2, 99, -7, 0, 1, 99});
  const SplitMask split = from_flex({counts.view(), indices.view()}, 2, 2, 3);
  Cells head = {0, 0, 1, 1, 1, 0}, all;
  for (int i = 0; i < 4; ++i) all.insert(all.end(), head.begin(), head.end());
  CHECK(split.mask.values() == all);
  CHECK(split.full.values() == Cells(24));
  const auto wrong = [&](const char* sentence, const std::function<void(FlexMask&)>& spoil) {
    Array full_counts = i32({1, 1, 2}, {1, 0}), full_indices = i32({1, 1, 2, 1}, {0, 0});
    FlexMask flex{counts.view(), indices.view(), full_counts.view(), full_indices.view()};
    CHECK_NOTHROW(from_flex(flex, 2, 2, 3));
    spoil(flex);
    fails(sentence, [&] { from_flex(flex, 2, 2, 3); });
  };
  Array many = i32({1, 1, 2}, {1, 4}), both = i32({1, 1, 2, 1}, {2, 0});
  wrong("kv_num_blocks: expected 0 to 3, the entries of kv_indices, got 4 in row 1",
        [&](auto& flex) { flex.kv_num_blocks = many.view(); });
  wrong("full_kv_indices: expected no block that is partial, got 2 in row 0",
        [&](auto& flex) { flex.full_kv_indices = both.view(); });
  wrong("full_kv_num_blocks, full_kv_indices: expected both or none, got one",
        [&](auto& flex) { flex.full_kv_indices.reset(); });
  wrong("kv_num_blocks: expected 2 or 1 on axis 1, got [1, 3, 2]",
        [&](auto& flex) { flex.kv_num_blocks.shape[1] = 3; });
}

TEST_CASE("blocks by a predicate: partial, full, or none", "[formats]") {
  // q >= kv and kv % 7 != 0 on 200 tokens (a report of PyTorch's): no block is full but where no
  // multiple of 7 is; and of the tail only what is there counts.
  const BlockGrid grid{200, 200, 64, false};
  const SplitMask split = split_by(
      1, 1, grid, [](int64_t, int64_t, int64_t q, int64_t k) { return q >= k && k % 7 != 0; });
  CHECK(split.mask.values() == create_causal_mask(1, 1, {200, 200, 64, true}).values());
  CHECK(split.full.values() == Cells(16));
  const SplitMask causal = split_by(
      1, 2, {200, 200, 64, true}, [](auto, int64_t h, auto, auto k) { return h == 0 || k >= 192; });
  CHECK(causal.full.values() == Cells{0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0,  //
                                      0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  CHECK(causal.mask.get(31) == 1);
  // Against every pair, on random predicates.
  std::mt19937_64 random(test::run_seed());
  for (int round = 0; round < 10; ++round) {
    const BlockGrid ragged{draw(random, 1, 50), draw(random, 1, 50),
                           BlockShape(draw(random, 1, 20), draw(random, 1, 20)),
                           draw(random, 0, 1) == 1};
    const int64_t a = draw(random, 1, 9), b = draw(random, 1, 30);
    const auto sees = [&](int64_t, int64_t h, int64_t q, int64_t k) {
      return (q / a + k / b + h) % 2 == 0;
    };
    const SplitMask got = split_by(1, 2, ragged, sees);
    for (int64_t h = 0, at = 0; h < 2; ++h)
      for (int64_t r = 0; r < ragged.rows(); ++r)
        for (int64_t c = 0; c < ragged.cols(); ++c, ++at) {
          int64_t seen = 0, pairs = 0;
          for (int64_t q = r * ragged.block.q; q < (r + 1) * ragged.block.q; ++q)
            for (int64_t k = c * ragged.block.k; k < (c + 1) * ragged.block.k; ++k) {
              if (q >= ragged.seq || k >= ragged.seq_kv) continue;
              ++pairs;
              seen += sees(0, h, q, k) && (!ragged.causal || k <= q + ragged.seq_kv - ragged.seq);
            }
          CHECK(got.mask.get(at) == (seen > 0));
          CHECK(got.full.get(at) == (seen > 0 && seen == pairs));
        }
  }
}

TEST_CASE("masks of larger and smaller blocks", "[formats]") {
  // 1024 by 1024 as 128 by 128, and back.
  std::mt19937_64 random(test::run_seed());
  for (int round = 0; round < 30; ++round) {
    const Array coarse = random_mask(random, random_shape(random));
    const BlockShape ratio(draw(random, 1, 8), draw(random, 1, 8));
    const int64_t rows =
        std::max<int64_t>(0, coarse.shape()[2] * ratio.q - draw(random, 0, ratio.q - 1));
    const int64_t cols =
        std::max<int64_t>(0, coarse.shape()[3] * ratio.k - draw(random, 0, ratio.k - 1));
    const Array fine = expand(coarse, ratio, rows, cols);
    CHECK(coarsen(fine, ratio, CoarsenRule::Any).values() == coarse.values());
    CHECK(coarsen(fine, ratio, CoarsenRule::All).values() == coarse.values());
  }
  const Array fine(Bool, {1, 1, 3, 3}, Cells{1, 0, 1, 1, 1, 0, 0, 0, 1});
  CHECK(coarsen(fine, 2, CoarsenRule::Any).values() == Cells{1, 1, 0, 1});
  CHECK(coarsen(fine, 2, CoarsenRule::All).values() == Cells{0, 0, 0, 1});
  CHECK(coarsen(fine, {std::numeric_limits<int64_t>::max(), 1}, CoarsenRule::Any).values() ==
        Cells{1, 1, 1});
  fails("ratio: expected 1 or more blocks by 1 or more, got 0",
        [&] { coarsen(fine, 0, CoarsenRule::Any); });
  fails("mask: expected 2 rows and 2 columns, 4 and 4 of blocks 2 times as large, got [1, 1, 3, 3]",
        [&] { expand(fine, 2, 4, 4); });
}

TEST_CASE("a causal mask is bottom-right, with history", "[formats]") {
  CHECK(create_causal_mask(1, 1, {128, 128, 64, true}).values() == Cells{1, 0, 1, 1});
  CHECK(create_causal_mask(1, 1, {128, 256, 64, true}).values() == Cells{1, 1, 1, 0, 1, 1, 1, 1});
  CHECK(create_causal_mask(2, 1, {130, 66, 64, true}).values() ==
        Cells{0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1});
  CHECK(create_causal_mask(1, 1, {64, 130, 64, false}).values() == Cells{1, 1, 1});
}

TEST_CASE("lists that are not canonical", "[formats][errors]") {
  const auto wrong = [](const char* sentence, const Cells& counts, const Cells& entries) {
    Array c = i32({1, 1, 2}, counts), i = i32({1, 1, 2, 2}, entries);
    fails(sentence, [&] { check_lists(c.view(), i.view(), 4); });
  };
  wrong("counts: expected 0 to 2, the entries of indices, got 3 in row 1 of batch 0, head 0",
        {1, 3}, {0, -1, 0, 1});
  wrong("indices: expected columns 0 to 3, got 4 in row 1", {1, 2}, {0, -1, 0, 4});
  wrong("indices: expected ascending columns, got 0 after 1 in row 1", {1, 2}, {0, -1, 1, 0});
  wrong("indices: expected ascending columns, got 1 after 1 in row 1", {1, 2}, {0, -1, 1, 1});
  const Array floats(F32, {1, 1, 2, 2});
  fails("mask: expected bool or i8 [batch, heads, rows, cols], got f32", [&] { to_csr(floats); });
  fails("mask: expected bool or i8 [batch, heads, rows, cols], got f32", [&] { to_lists(floats); });
  fails("full: expected shape [1, 1, 2, 2], as the mask has, got [1, 1, 1, 1]", [&] {
    to_flex({Array(Bool, {1, 1, 2, 2}), Array(Bool, {1, 1, 1, 1})});
  });
  Array few(I32, {1}), short_counts(I32, {1, 1, 1}), entries(I32, {1, 1, 2, 2});
  fails("counts: expected shape [batch, heads, rows], got [1]",
        [&] { from_lists(few.view(), entries.view(), 4); });
  fails("counts: expected shape [1, 1, 2], got [1, 1, 1]",
        [&] { from_lists(short_counts.view(), entries.view(), 4); });
  fails("block: expected 1 or more queries by 1 or more keys, got 0", [&] {
    create_causal_mask(1, 1, {8, 8, 0, true});
  });
  fails("block: expected 1 or more queries by 1 or more keys, got 4x0", [&] {
    split_by(1, 1, {8, 8, {4, 0}, false}, [](auto, auto, auto, auto) { return true; });
  });
  Array words(U64, {1, 1, 2, 1});
  fails("words: expected shape [1, 1, 2, 2], got [1, 1, 2, 1]",
        [&] { from_bits(words.view(), 65); });
}

TEST_CASE("places of masks have 64 bits", "[formats]") {
  // 2^32 bits of a row of words whose strides are 0: only looking at them all would take long.
  Array word(U64, {1, 1, 1, 1});
  word.span<uint64_t>()[0] = 5;
  Memory far = word.view();
  far.strides = {int64_t{1} << 40, int64_t{1} << 40, int64_t{1} << 40, 1};
  CHECK(from_bits(far, 3).values() == Cells{1, 0, 1});
  // Blocks 46341 by 46341 and on: their number is above 2^31 (sparse-attention spec §6.4).
  const BlockGrid grid{int64_t{46400} * 128, int64_t{46400} * 128, 128, true};
  CHECK(grid.visible_cols(46399) * grid.rows() == int64_t{46400} * 46400);
}
