// Masks, lists, dense, and the two spellings of the softmax mean the same.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/stats.h"
#include "tests/kernels/attention_case.h"

using namespace kiln;
using namespace kiln::test;

namespace {

AttentionConfig config_of(BlockForm form) {
  AttentionConfig config;
  config.head_dim = config.head_dim_v = 32;
  config.block = 16;
  config.form = form;
  config.lse = true;
  return config;
}

// Largest difference of two results.
double difference(const Array& a, const Array& b) {
  double worst = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    double error = std::abs(a.get(i) - b.get(i));
    if (a.get(i) != b.get(i)) worst = std::max(worst, error);
  }
  return worst;
}

void set_lists(AttentionCase& one, int64_t entries, std::initializer_list<double> counts,
               std::initializer_list<double> indices) {
  int64_t rows = static_cast<int64_t>(counts.size());
  one.lists.counts = Array(I32, {1, 1, rows}, std::vector<double>(counts));
  one.lists.indices = Array(I32, {1, 1, rows, entries}, std::vector<double>(indices));
  one.args.counts = one.lists.counts.view();
  one.args.indices = one.lists.indices.view();
}

}  // namespace

TEST_CASE("lists are sets: any order, duplicates once, negative and far ones skipped",
          "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(config_of(BlockForm::Lists), {.seq = 16, .seq_kv = 80});
    one.randomize(31);
    Array expected;
    for (auto indices : {std::initializer_list<double>{0, 2, 3, -1, -1, -1},
                         {3, 2, 0, -1, -1, -1},
                         {-1, 3, 3, 0, 2, 0},
                         {5, 2, -7, 0, 1000000, 3},
                         {2, 0, 2147483647, -2147483648.0, 3, 3}}) {
      set_lists(one, 6, {6}, indices);
      one.check(device(where));
      if (expected.size() == 0) expected = one.o;
      CHECK(difference(one.o, expected) < 1e-3);
    }
    Array seen = effective_mask(one.config, one.args);
    CHECK(seen.values() == std::vector<double>{1, 0, 1, 1, 0});
  }
}

TEST_CASE("only the first `count` entries of a list count", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(config_of(BlockForm::Lists), {.seq = 64, .seq_kv = 64});
    one.randomize(32);
    // Counts of 0, below 0 and beyond the width.
    set_lists(one, 3, {2, 0, -5, 100}, {1, 3, 0, 0, 1, 2, 0, 1, 2, 0, 3, -1});
    one.check(device(where));
    CHECK(effective_mask(one.config, one.args).values() ==
          std::vector<double>{0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1});
    CHECK(one.lse.get(16) == -INFINITY);
  }
}

TEST_CASE("lists of width 0 select nothing", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(config_of(BlockForm::Lists), {.seq = 20, .seq_kv = 64});
    one.randomize(33, 0);
    CHECK(one.lists.indices.shape() == Shape{1, 1, 2, 0});
    one.check(device(where));
  }
}

TEST_CASE("bool mask, int8 mask and lists give the same bits", "[attention]") {
  for (auto where : devices())
    for (bool causal : {false, true}) {
      Array first;
      for (auto form : {BlockForm::MaskBool, BlockForm::MaskI8, BlockForm::Lists}) {
        AttentionConfig config = config_of(form);
        config.causal = causal;
        AttentionCase one(config, {.heads = 2, .seq = 70, .seq_kv = 90});
        one.randomize(34);
        one.check(device(where));
        if (first.size() == 0) first = one.o;
        CHECK(difference(first, one.o) == 0);
      }
    }
}

TEST_CASE("any non-zero int8 selects", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(config_of(BlockForm::MaskI8), {.seq = 16, .seq_kv = 64});
    one.randomize(35);
    one.mask = Array(I8, {1, 1, 1, 4}, std::vector<double>{-128, 0, 2, -1});
    one.args.mask = one.mask.view();
    one.check(device(where));
    CHECK(effective_mask(one.config, one.args).values() == std::vector<double>{1, 0, 1, 1});
  }
}

TEST_CASE("dense is the full mask", "[attention]") {
  for (auto where : devices())
    for (bool causal : {false, true}) {
      AttentionConfig config = config_of(BlockForm::MaskBool);
      config.causal = causal;
      AttentionCase masked(config, {.heads = 2, .seq = 70, .seq_kv = 90});
      masked.randomize(36, 1);
      masked.check(device(where));
      config.form = BlockForm::Dense;
      AttentionCase dense(config, {.heads = 2, .seq = 70, .seq_kv = 90});
      dense.randomize(36, 1);
      dense.check(device(where));
      CHECK(difference(masked.o, dense.o) == 0);
      CHECK(difference(masked.lse, dense.lse) == 0);
    }
}

TEST_CASE("written out with reduce and exp it gives the same result", "[attention]") {
  for (auto where : devices())
    for (bool fast_math : {false, true}) {
      AttentionConfig config = config_of(BlockForm::MaskBool);
      config.causal = true;
      config.dtype = F32;
      config.fast_math = fast_math;
      AttentionCase online(config, {.heads = 2, .seq = 70, .seq_kv = 60});
      online.randomize(37);
      online.check(device(where));
      config.written_out = true;
      AttentionCase written(config, {.heads = 2, .seq = 70, .seq_kv = 60});
      written.randomize(37);
      written.check(device(where));
      CHECK(difference(online.o, written.o) < 2e-6);
      CHECK(difference(online.lse, written.lse) < 2e-6);
    }
}

TEST_CASE("row t of many is the last row of a call that ends there", "[attention]") {
  AttentionConfig config = config_of(BlockForm::MaskBool);
  config.causal = true;
  AttentionCase whole(config, {.seq = 77, .seq_kv = 77});
  whole.randomize(38);
  whole.run(fast_device());
  for (int64_t t : {0, 15, 16, 40, 76}) {
    AttentionCase one(config, {.seq = 1, .seq_kv = t + 1});
    for (int64_t i = 0; i < (t + 1) * 32; ++i) {
      one.k.set(i, whole.k.get(i));
      one.v.set(i, whole.v.get(i));
    }
    Array row(Bool, {1, 1, 1, one.grid().cols()});
    for (int64_t d = 0; d < 32; ++d) one.q.set(d, whole.q.get(t * 32 + d));
    for (int64_t c = 0; c < one.grid().cols(); ++c)
      row.set(c, whole.mask.get(t / 16 * whole.grid().cols() + c));
    one.use(row);
    one.check(fast_device());
    for (int64_t d = 0; d < 32; ++d)
      CHECK(one.o.get(d) == Approx(whole.o.get(t * 32 + d)).margin(1e-3));
  }
}

TEST_CASE("random batch, heads and lengths cause one compilation", "[attention]") {
  std::mt19937_64 random(run_seed());
  AttentionConfig config = config_of(BlockForm::MaskBool);
  config.head_dim = 48;  // that no other test uses
  config.causal = true;
  int64_t before = compile_stats().compilations + compile_stats().disk_loads;
  for (int call = 0; call < 100; ++call) {
    auto up_to = [&](int64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
    AttentionCase one(config, {.batch = up_to(2),
                               .heads = 2,
                               .heads_kv = 1 + up_to(1),
                               .seq = up_to(100),
                               .seq_kv = up_to(100)});
    one.randomize(random());
    one.run(fast_device());
  }
  CHECK(compile_stats().compilations + compile_stats().disk_loads - before == 1);
}
