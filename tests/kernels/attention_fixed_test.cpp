// Small problems whose results are known exactly.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/attention_case.h"

using namespace kiln;
using namespace kiln::test;

namespace {

AttentionConfig small(DType dtype = F16) {
  AttentionConfig config;
  config.dtype = dtype;
  config.head_dim = config.head_dim_v = 64;
  config.lse = true;
  return config;
}

Array mask_of(const Shape& shape, std::initializer_list<double> cells) {
  return Array(Bool, shape, std::vector<double>(cells));
}

}  // namespace

TEST_CASE("a row block that selects nothing gives zeros and -inf (T1)", "[attention]") {
  for (auto where : devices())
    for (bool written_out : {false, true}) {
      AttentionConfig config = small();
      config.written_out = written_out;
      AttentionCase one(config, {.seq = 128, .seq_kv = 128});
      one.randomize(7);
      fill(one.v, 1);
      one.use(mask_of({1, 1, 2, 2}, {0, 0, 1, 0}));
      one.run(device(where));
      INFO(where << (written_out ? " written out" : ""));
      for (int64_t i = 0; i < 128; ++i) {
        CHECK(one.o.get(i * 64 + 5) == (i < 64 ? 0 : 1));
        CHECK(std::isinf(one.lse.get(i)) == (i < 64));
        if (i < 64) CHECK(one.lse.get(i) < 0);
      }
    }
}

TEST_CASE("keys beyond the end take no part (T3)", "[attention]") {
  for (auto where : devices())
    for (int64_t length : {100, 1, 63, 65, 127}) {
      AttentionCase one(small(), {.seq = length, .seq_kv = length});
      fill(one.v, 1);
      one.run(device(where));
      INFO(where << " length " << length);
      for (int64_t i = 0; i < one.o.size(); ++i) REQUIRE(one.o.get(i) == 1);
      for (int64_t i = 0; i < length; ++i)
        CHECK(one.lse.get(i) == Approx(std::log(static_cast<double>(length))).margin(1e-5));
    }
}

TEST_CASE("nothing is written beyond the last row", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(small(), {.seq = 100, .seq_kv = 100});
    one.randomize(8);
    Array guarded(F16, {1, 1, 128, 64});
    fill(guarded, -7);
    one.args.o = guarded.view();
    one.args.o.shape[2] = 100;
    one.run(device(where));
    for (int64_t i = 100 * 64; i < 128 * 64; ++i) REQUIRE(guarded.get(i) == -7);
  }
}

TEST_CASE("causal with only future blocks sees nothing", "[attention]") {
  for (auto where : devices()) {
    AttentionConfig config = small();
    config.causal = true;
    AttentionCase one(config, {.seq = 128, .seq_kv = 128});
    one.randomize(9);
    one.use(mask_of({1, 1, 2, 2}, {0, 1, 0, 0}));
    one.run(device(where));
    for (int64_t i = 0; i < one.o.size(); ++i) REQUIRE(one.o.get(i) == 0);
    for (int64_t i = 0; i < one.lse.size(); ++i) REQUIRE(one.lse.get(i) == -INFINITY);
  }
}

TEST_CASE("causal is bottom-right: row 0 of 64 queries sees keys 0 … 128 of 192", "[attention]") {
  for (auto where : devices()) {
    AttentionConfig config = small();
    config.causal = true;
    AttentionCase one(config, {.seq = 64, .seq_kv = 192});
    fill(one.v, 1);
    one.run(device(where));
    for (int64_t i = 0; i < 64; ++i)
      CHECK(one.lse.get(i) == Approx(std::log(129.0 + static_cast<double>(i))).margin(1e-4));
  }
}

TEST_CASE("more queries than keys: the first rows see nothing", "[attention]") {
  for (auto where : devices()) {
    AttentionConfig config = small();
    config.causal = true;
    AttentionCase one(config, {.seq = 130, .seq_kv = 40});
    one.randomize(10, 1);
    one.check(device(where));
    for (int64_t i = 0; i < 90; ++i) {
      CHECK(one.lse.get(i) == -INFINITY);
      CHECK(one.o.get(i * 64) == 0);
    }
    CHECK(std::isfinite(one.lse.get(90)));
  }
}

// K = 0 gives every visible key the same weight 1/n; with V[j] = one-hot over the width, the row of
// o times n counts, for each residue of j, the attended keys.
static void read_back(AttentionCase& one, Device& where) {
  int64_t width = one.config.dim_v();
  for (int64_t pass = 0; pass * width < one.sizes.seq_kv; ++pass) {
    fill(one.v, 0);
    for (int64_t j = pass * width; j < std::min((pass + 1) * width, one.sizes.seq_kv); ++j)
      one.v.set(j * width + j % width, 1);
    one.run(where);
    Array visible = effective_mask(one.config, one.args);
    BlockGrid grid = one.grid();
    for (int64_t i = 0; i < one.sizes.seq; ++i) {
      int64_t row = i / one.config.block.q, seen = 0;
      for (int64_t j = 0; j < grid.visible_keys(i); ++j)
        seen += visible.get(row * grid.cols() + j / one.config.block.k) != 0;
      for (int64_t d = 0; d < width; ++d) {
        int64_t j = pass * width + d;
        bool attended = j < grid.visible_keys(i) &&
                        visible.get(row * grid.cols() + j / one.config.block.k) != 0;
        double got = one.o.get(i * width + d) * static_cast<double>(seen);
        INFO(one.describe() << " on " << where.name() << ": query " << i << ", key " << j);
        REQUIRE(std::abs(got - (attended ? 1 : 0)) < (attended ? 2e-3 : 1e-30));
      }
    }
  }
}

TEST_CASE("coded inputs read back the exact attended set", "[attention]") {
  for (auto where : devices())
    for (bool causal : {false, true})
      for (auto [block, seq, seq_kv] :
           {std::tuple(64, 130, 200), std::tuple(16, 70, 33), std::tuple(32, 33, 100)}) {
        AttentionConfig config = small();
        config.block = block;
        config.causal = causal;
        AttentionCase one(config, {.seq = seq, .seq_kv = seq_kv});
        one.randomize(run_seed() + block, 0.5);
        fill(one.k, 0);
        read_back(one, device(where));
      }
}

TEST_CASE("scores of ±1e4 neither overflow nor vanish", "[attention]") {
  for (auto where : devices())
    for (double magnitude : {-1e4, 1e4}) {
      AttentionCase one(small(F32), {.seq = 64, .seq_kv = 130});
      // Every score is `magnitude` (scale 1/8, 64 products) but key 7's, which is 1 % larger.
      fill(one.q, 1);
      fill(one.k, magnitude / 8);
      for (int64_t d = 0; d < 64; ++d) one.k.set(7 * 64 + d, magnitude / 8 * 1.01);
      std::mt19937_64 random(11);
      fill_normal(one.v, random);
      one.check(device(where));
    }
}

TEST_CASE("equal scores, one dominant score", "[attention]") {
  for (auto where : devices()) {
    AttentionCase one(small(), {.seq = 70, .seq_kv = 90});
    one.randomize(12, 1);
    fill(one.k, 0.5);
    one.check(device(where));
    for (int64_t d = 0; d < 64; ++d) one.k.set(33 * 64 + d, one.q.get(d) * 8);
    one.check(device(where));
  }
}
