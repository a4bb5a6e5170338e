// How decode is split, and how parts are merged.
#include <catch2/catch.hpp>
#include <cmath>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/sparse_decode_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

TEST_CASE("decode: the split rule", "[decode][splits]") {
  struct Row {
    int64_t tiles, blocks, splits;
  };
  for (const Row& row : std::vector<Row>{
           {8, 4, 1},   {8, 5, 5},    {8, 26, 14},  {8, 51, 15},  {8, 205, 15},  {64, 4, 1},
           {64, 52, 2}, {64, 256, 2}, {105, 52, 5}, {106, 52, 1}, {1, 128, 109}, {2, 52, 45},
           {4, 52, 29}, {16, 52, 8},  {32, 52, 4},  {48, 52, 5},  {66, 52, 2},   {67, 52, 7},
           {88, 52, 3}, {100, 52, 5}, {8, 13, 12}}) {
    INFO("tiles " << row.tiles << " blocks " << row.blocks);
    CHECK(split_rule({.tiles = row.tiles, .multiprocessors = 132, .blocks = row.blocks}) ==
          row.splits);
  }
  const int64_t mib = 1 << 20;
  SplitShape streams{.tiles = 600,
                     .multiprocessors = 132,
                     .blocks = 9000,
                     .query_tiles = 264,
                     .bytes = 101 * mib,
                     .causal_or_local = false};
  CHECK(split_rule(streams) == 3);
  streams.bytes = 50 * mib;
  CHECK(split_rule(streams) == 1);
  streams.bytes = 51 * mib;
  CHECK(split_rule(streams) == 2);
  streams.query_tiles = 263;
  CHECK(split_rule(streams) == 1);
  CHECK(split_rule({.tiles = 1, .multiprocessors = 132, .blocks = 1000, .most = 8}) == 7);
}

TEST_CASE("decode: how a call is split", "[decode][splits]") {
  SparseDecodeCase one({.form = DecodeForm::Dense}, {.batch = 1, .heads_kv = 8, .room = 1664});
  const auto plan = [&](int64_t multiprocessors) {
    const SplitPlan all = split_plan(one.config, one.args, multiprocessors);
    return std::pair(all.splits, all.quota);
  };
  CHECK(plan(132) ==
        std::pair<int64_t, int64_t>(13, 2));  // the rule's 23 of 26 blocks, for two blocks each
  CHECK(plan(1) == std::pair<int64_t, int64_t>(1, 26));  // 8 units fill it
  one.args.splits = 5;
  CHECK(plan(132) == std::pair<int64_t, int64_t>(5, 6));
  one.args.splits = 128;
  CHECK(plan(1) == std::pair<int64_t, int64_t>(26, 1));
  one.args.splits.reset();
  one.args.batch_invariant = true;
  CHECK(plan(1) == plan(132));
}

namespace {

// Of row `from` of a problem, the same sequence as the only one.
void take_sequence(const SparseDecodeCase& all, int64_t b, SparseDecodeCase& one) {
  const auto rows = [&](const Array& from, Array& to) {
    const int64_t size = to.size();
    for (int64_t i = 0; i < size; ++i) to.set(i, from.get(b * size + i));
  };
  rows(all.q, one.q);
  rows(all.k_store, one.k_store);
  rows(all.v_store, one.v_store);
  rows(all.chosen, one.chosen);
  rows(all.lengths, one.lengths);
}

}  // namespace

TEST_CASE("decode: batch-invariant splits give the bits of each sequence alone",
          "[decode][splits]") {
  std::mt19937_64 random(run_seed());
  for (DecodeForm form : {DecodeForm::Indices, DecodeForm::Dense}) {
    const DecodeConfig config{.head_dim = 64, .block = 64, .form = form, .lse = true};
    SparseDecodeCase all(config, {.batch = 4, .heads_kv = 2, .room = 1500, .entries = 30});
    SparseDecodeCase one(config, {.batch = 1, .heads_kv = 2, .room = 1500, .entries = 30});
    all.randomize(random);
    all.lengths.set(3, 1500);
    all.fill_cache(random, NAN);
    all.args.batch_invariant = one.args.batch_invariant = true;
    all.check(fast_device());
    for (int64_t b = 0; b < 4; ++b) {
      take_sequence(all, b, one);
      one.run(fast_device());
      for (int64_t i = 0; i < one.o.size(); ++i)
        REQUIRE(one.o.get(i) == all.o.get(b * one.o.size() + i));
      for (int64_t i = 0; i < one.lse.size(); ++i)
        REQUIRE(one.lse.get(i) == all.lse.get(b * one.lse.size() + i));
    }
  }
}

TEST_CASE("lse_merge: golden values", "[decode][merge]") {
  const Array two(F32, {1, 1}, std::vector<double>{2}), zero(F32, {1}, std::vector<double>{0});
  const Array nan(F32, {1, 1}, std::vector<double>{NAN});
  const Array none(F32, {1}, std::vector<double>{-INFINITY});
  const Array four(F32, {1, 1}, std::vector<double>{4}),
      ln3(F32, {1}, std::vector<double>{std::log(3.0)});
  const Merged merged =
      lse_merge({{two.view(), zero.view()}, {nan.view(), none.view()}, {four.view(), ln3.view()}});
  CHECK(merged.o.get(0) == Approx(3.5));
  CHECK(merged.lse.get(0) == Approx(1.386294).margin(1e-6));
  const Merged empty = lse_merge({{nan.view(), none.view()}, {two.view(), none.view()}});
  CHECK(empty.o.get(0) == 0);
  CHECK(empty.lse.get(0) == -INFINITY);
}

TEST_CASE("lse: conventions of others", "[decode][merge]") {
  Array lse(F32, {3}, std::vector<double>{1, -INFINITY, 0});
  lse_to_base2(lse);
  CHECK(lse.get(0) == Approx(1.4426950408889634));
  CHECK(lse.get(1) == -INFINITY);
  lse_from_base2(lse);
  CHECK(lse.get(0) == Approx(1));
  lse_empty_to_plus_infinity(lse);
  CHECK(lse.get(1) == INFINITY);
  CHECK(lse.get(2) == 0);
  lse_empty_from_plus_infinity(lse);
  CHECK(lse.get(1) == -INFINITY);
  Array f16(F16, {1});
  CHECK_THROWS_WITH(lse_to_base2(f16), Contains("lse: expected dtype f32, got f16"));
}

TEST_CASE("lse_merge: what does not fit", "[decode][merge]") {
  const Array o(F32, {2, 4}), lse(F32, {2}), more(F32, {3, 4}), of_more(F32, {3}), ints(I32, {2});
  CHECK_THROWS_WITH(lse_merge({}), Contains("expected at least one part"));
  CHECK_THROWS_WITH(
      lse_merge({{o.view(), of_more.view()}}),
      Contains("part 0: expected o [rows, dim_v] and lse [rows], got [2, 4] and [3]"));
  CHECK_THROWS_WITH(lse_merge({{o.view(), lse.view()}, {more.view(), of_more.view()}}),
                    Contains("part 1: expected the shape of part 0, [2, 4], got [3, 4]"));
  CHECK_THROWS_WITH(lse_merge({{o.view(), ints.view()}}),
                    Contains("expected floats, got f32 and i32"));
}

TEST_CASE("decode: two disjoint selections merged are their union", "[decode][merge]") {
  std::mt19937_64 random(run_seed());
  const DecodeConfig config{.head_dim = 64, .form = DecodeForm::MaskBool, .lse = true};
  SparseDecodeCase all(config, {.batch = 2, .heads_kv = 2, .room = 300, .entries = 0});
  for (int64_t i = 0; i < all.chosen.size(); ++i) all.chosen.set(i, 1);
  all.lengths.set(0, 300);
  all.lengths.set(1, 170);
  all.fill_cache(random, NAN);
  all.run(fast_device());
  const Array whole = all.o, whole_lse = all.lse;
  std::vector<Array> o, lse;
  Array first(Bool, all.chosen.shape());
  for (int64_t i = 0; i < first.size(); ++i) first.set(i, static_cast<double>(random() % 2));
  for (double part : {0.0, 1.0}) {
    for (int64_t i = 0; i < first.size(); ++i) all.chosen.set(i, first.get(i) == part);
    all.run(fast_device());
    const int64_t rows = all.lse.size();
    o.emplace_back(F32, Shape{rows, 64}, all.o.values());
    lse.emplace_back(F32, Shape{rows}, all.lse.values());
  }
  const Merged merged = lse_merge({{o[0].view(), lse[0].view()}, {o[1].view(), lse[1].view()}});
  CHECK(compare(merged.lse.values(), whole_lse.values(), 1, lse_accuracy_rule()).ok());
  // Both sides were rounded to f16.
  for (int64_t i = 0; i < whole.size(); ++i)
    REQUIRE(merged.o.get(i) == Approx(whole.get(i)).margin(4e-3));
}
