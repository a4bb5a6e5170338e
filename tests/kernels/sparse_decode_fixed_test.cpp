// Sparse decode: what must hold whatever the inputs are.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/attention_case.h"
#include "tests/kernels/sparse_decode_case.h"

using namespace kiln;
using namespace kiln::test;

namespace {

DecodeConfig small() {
  return {.head_dim = 64, .block = 32, .lse = true};
}

void require_same(const Array& a, const Array& b) {
  REQUIRE(a.size() == b.size());
  for (int64_t i = 0; i < a.size(); ++i) REQUIRE(a.get(i) == b.get(i));
}

}  // namespace

TEST_CASE("decode: lengths 0 and 1, and lists of nothing", "[decode]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices())
    for (bool split : {false, true}) {
      DecodeConfig config = small();
      config.split = split;
      SparseDecodeCase one(config, {.batch = 4, .room = 70, .entries = 2});
      for (auto [b, length] : {std::pair(0, 0), {1, 1}, {2, 70}, {3, 70}})
        one.lengths.set(b, length);
      for (int64_t i = 0; i < one.chosen.size(); ++i) one.chosen.set(i, i < 6 ? i % 2 : -1);
      one.fill_cache(random, NAN);
      one.check(device(where));
      for (int64_t b : {0, 3})
        for (int64_t i = 0; i < 4; ++i) {
          CHECK(one.lse.get(b * 4 + i) == -INFINITY);
          CHECK(one.o.get((b * 4 + i) * 64 + i) == 0);
        }
    }
  // Without an entry, or a batch, there is nothing to do.
  for (auto [batch, entries] : {std::pair<int64_t, int64_t>(2, 0), {0, 3}}) {
    SparseDecodeCase none(small(), {.batch = batch, .room = 70, .entries = entries});
    none.check(fast_device());
  }
}

TEST_CASE("decode: permuting a list, and repeating in it, changes nothing", "[decode]") {
  std::mt19937_64 random(run_seed());
  SparseDecodeCase one(small(), {.batch = 2, .heads_kv = 2, .room = 3000, .entries = 40});
  one.args.splits = 3;
  one.randomize(random);
  for (int64_t i = 0; i < one.chosen.size(); ++i)
    one.chosen.set(i, static_cast<double>(random() % 110) - 3);
  one.fill_cache(random, INFINITY);
  one.check(fast_device());
  const Array before = one.o;
  for (int64_t row = 0; row < 4; ++row) {
    auto entries = one.chosen.span<int32_t>().subspan(static_cast<size_t>(row) * 40, 40);
    std::shuffle(entries.begin(), entries.end(), random);
  }
  one.run(fast_device());
  require_same(one.o, before);
}

TEST_CASE("decode: more blocks than the window of a list", "[decode]") {
  std::mt19937_64 random(run_seed());
  for (DecodeForm form : {DecodeForm::Indices, DecodeForm::MaskI8}) {
    DecodeConfig config{.head_dim = 16, .group = 2, .block = 16, .form = form};
    SparseDecodeCase one(config,
                         {.room = 16 * 2500, .entries = form == DecodeForm::Indices ? 300 : 1});
    one.randomize(random);
    one.lengths.set(0, 16 * 2500 - 5);
    one.fill_cache(random, NAN);
    one.args.splits = 7;
    one.check(fast_device());
  }
}

TEST_CASE("decode: several tokens see what each would alone", "[decode]") {
  std::mt19937_64 random(run_seed());
  for (bool per_token : {false, true}) {
    DecodeConfig config = small();
    config.tokens = 4;
    config.per_token = per_token;
    SparseDecodeCase all(config, {.batch = 2, .heads_kv = 2, .room = 200, .entries = 5});
    all.randomize(random);
    all.lengths.set(0, 200);
    all.lengths.set(1, 2);  // the first tokens are before its start
    all.fill_cache(random, NAN);
    all.check(fast_device());
    config.tokens = 1;
    config.per_token = false;
    SparseDecodeCase one(config, {.batch = 2, .heads_kv = 2, .room = 200, .entries = 5});
    one.args.k = all.args.k;
    one.args.v = all.args.v;
    for (int64_t token = 0; token < 4; ++token) {
      for (int64_t b = 0; b < 2; ++b) {
        one.lengths.set(b, std::max(0.0, all.lengths.get(b) - 3 + static_cast<double>(token)));
        for (int64_t i = 0; i < 8 * 64; ++i)
          one.q.set(b * 8 * 64 + i, all.q.get((b * 4 + token) * 8 * 64 + i));
        for (int64_t i = 0; i < 10; ++i)
          one.chosen.set(b * 10 + i,
                         all.chosen.get(per_token ? (b * 4 + token) * 10 + i : b * 10 + i));
      }
      // A block that all tokens share may hold a key that is poison to one alone.
      one.check(fast_device());
      for (int64_t b = 0; b < 2; ++b)
        for (int64_t i = 0; i < 8 * 64; ++i)
          CHECK(one.o.get(b * 8 * 64 + i) ==
                Approx(all.o.get((b * 4 + token) * 8 * 64 + i)).margin(2e-3));
    }
  }
}

TEST_CASE("decode: a token sees what its row of a prefill with history sees", "[decode]") {
  const int64_t seq = 20, all = 200, past = all - seq - 4;  // history of whole blocks: 176
  AttentionConfig config{.head_dim = 64, .block = {16, 32}};
  config.form = BlockForm::MaskI8;
  config.causal = config.lse = true;
  AttentionCase prefill(config, {.heads = 4, .heads_kv = 2, .seq = all - past, .seq_kv = all});
  std::mt19937_64 random(run_seed());
  prefill.randomize(run_seed());
  Array mask(I8, {1, 4, 13, 7});  // of all queries; a kv head's two heads see the same
  for (int64_t i = 0; i < mask.size(); ++i)
    mask.set(i, i / 91 % 2 ? mask.get(i - 91) : static_cast<double>(random() % 2));
  const Array rows = slice_rows(mask, past, 16);
  prefill.args.mask = rows.view();
  prefill.check(fast_device());

  DecodeConfig one{.head_dim = 64, .group = 2, .block = 32, .form = DecodeForm::MaskI8};
  const SparseDecode decode = sparse_decode(device("host"), one);
  Array o(F16, {1, 4, 64}), q(F16, {1, 4, 64}), length(I32, {1}), chosen(I8, {1, 2, 7});
  DecodeArgs args{.q = q.view(), .k = prefill.k.view(), .v = prefill.v.view(), .o = o.view()};
  for (Memory* cache : {&args.k, &args.v}) {  // [batch, heads, keys, dim]: HND
    std::swap(cache->shape[1], cache->shape[2]);
    std::swap(cache->strides[1], cache->strides[2]);
  }
  args.lengths = length.view();
  args.chosen = chosen.view();
  for (int64_t i = 0; i < all - past; ++i) {
    const auto at = [&](int64_t head, int64_t d) { return (head * (all - past) + i) * 64 + d; };
    length.set(0, static_cast<double>(past + i + 1));
    for (int64_t n = 0; n < 4 * 64; ++n) q.set(n, prefill.q.get(at(n / 64, n % 64)));
    for (int64_t n = 0; n < 14; ++n)
      chosen.set(n, rows.get(((n / 7 * 2) * rows.shape()[2] + i / 16) * 7 + n % 7));
    decode(args);
    for (int64_t n = 0; n < 4 * 64; ++n)
      REQUIRE(o.get(n) == Approx(prefill.o.get(at(n / 64, n % 64))).margin(2e-3));
  }
}

TEST_CASE("decode: pages of every size, in every layout", "[decode][paged]") {
  std::mt19937_64 random(run_seed());
  for (int64_t page : {16, 32, 64, 128, 256, 1024})
    for (CacheLayout layout : {CacheLayout::Nhd, CacheLayout::Hnd, CacheLayout::Interleaved}) {
      DecodeConfig config = small();
      config.block = page == 16 || page == 64 ? 32 : 64;
      config.page = page;
      SparseDecodeCase one(config, {.batch = 3,
                                    .heads_kv = 2,
                                    .room = page == 1024 ? 2048 : 300,
                                    .entries = 12,
                                    .layout = layout});
      one.randomize(random);
      one.fill_cache(random, NAN);
      one.check(fast_device());
    }
}

TEST_CASE("decode: a bad page of the table reads as zeros", "[decode][paged]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices())
    for (double page : {-1.0, -2147483648.0, 2147483647.0, 100.0}) {
      DecodeConfig config = small();
      config.form = DecodeForm::Dense;
      config.page = 32;
      SparseDecodeCase one(config, {.room = 64});
      one.lengths.set(0, 64);
      one.fill_cache(random, NAN);
      one.table.set(1, page);
      one.run(device(where));
      for (int64_t i = 0; i < one.o.size(); ++i) CHECK(std::isfinite(one.o.get(i)));
    }
}

TEST_CASE("decode: checked kernels name what is wrong", "[decode][errors]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices()) {
    DecodeConfig config = small();
    config.form = DecodeForm::Dense;
    config.page = 32;
    config.left_pad = true;
    config.checked = true;
    SparseDecodeCase one(config, {.batch = 2, .room = 64});
    one.lengths.set(0, 40);
    one.lengths.set(1, 31);
    one.fill_cache(random, NAN);  // entries that no sequence has are huge
    one.check(device(where));
    const auto expect = [&](Array& array, int64_t at, double wrong, const char* text) {
      const double right = array.get(at);
      array.set(at, wrong);
      CHECK_THROWS_WITH(one.run(device(where)), Catch::Contains(text));
      array.set(at, right);
    };
    expect(one.lengths, 1, 65, "lengths: expected 0 to the cache's keys");
    expect(one.lengths, 0, -1, "lengths: expected 0 to the cache's keys");
    expect(one.starts, 1, 32, "starts: expected 0 to the sequence's length");
    expect(one.table, 1, 7, "table: expected a page of the cache");
    expect(one.table, 0, -1, "table: expected a page of the cache");
    one.check(device(where));
  }
}

TEST_CASE("decode: fp8 caches, with a scale for all heads or for each", "[decode]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices())
    for (DType dtype : {F16, BF16}) {
      DecodeConfig config = small();
      config.dtype = dtype;
      config.fp8_cache = true;
      SparseDecodeCase one(config, {.batch = 2, .heads_kv = 2, .room = 100, .entries = 3});
      one.randomize(random);
      one.lengths.set(0, 90);
      one.fill_cache(random, NAN);
      one.check(device(where));
    }
}

TEST_CASE("decode: lengths beyond the cache are cut, negative ones empty", "[decode]") {
  std::mt19937_64 random(run_seed());
  DecodeConfig config = small();
  config.form = DecodeForm::Dense;
  SparseDecodeCase one(config, {.batch = 2, .room = 70});
  one.lengths.set(0, 70);
  one.lengths.set(1, 0);
  one.fill_cache(random, NAN);
  one.run(fast_device());
  const Array before = one.o;
  one.lengths.set(0, 2147483647);
  one.lengths.set(1, -2147483648.0);
  one.run(fast_device());
  require_same(one.o, before);
}

TEST_CASE("decode: the shipped configurations", "[decode]") {
  std::mt19937_64 random(run_seed());
  for (const DecodeConfig& config : shipped_decode_configs()) {
    SparseDecodeCase one(config, {.batch = 2, .heads_kv = 2, .room = 700, .entries = 7});
    one.randomize(random);
    one.fill_cache(random, NAN);
    one.args.splits = 3;
    one.check(fast_device());
  }
}

TEST_CASE("decode: any group of query heads", "[decode]") {
  std::mt19937_64 random(run_seed());
  for (int64_t group : {1, 2, 17, 71, 128, 144}) {
    DecodeConfig config = small();
    config.group = group;
    config.tokens = group == 71 ? 2 : 1;
    SparseDecodeCase one(config, {.batch = 1, .heads_kv = 2, .room = 100, .entries = 3});
    one.randomize(random);
    one.lengths.set(0, 90);
    one.fill_cache(random, NAN);
    one.check(fast_device());
  }
}
