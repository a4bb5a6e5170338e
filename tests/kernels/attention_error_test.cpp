// What a caller gets wrong is a sentence that names it.
#include <catch2/catch.hpp>
#include <functional>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

AttentionConfig config() {
  AttentionConfig config;
  config.head_dim = config.head_dim_v = 32;
  return config;
}

void expect(const char* sentence, const std::function<void(AttentionCase&)>& spoil,
            AttentionConfig with = config()) {
  AttentionCase one(with, {.heads = 2, .heads_kv = 2, .seq = 200, .seq_kv = 256});
  spoil(one);
  INFO(sentence);
  CHECK_THROWS_WITH(one.run(device("host")), Contains(sentence));
  CHECK_THROWS_AS(one.run(device("host")), UserError);
}

void expect_config(const char* sentence, const std::function<void(AttentionConfig&)>& spoil) {
  AttentionConfig bad = config();
  spoil(bad);
  CHECK_THROWS_WITH(validated(bad), Contains(sentence));
  CHECK_THROWS_WITH(block_sparse_attention(device("host"), bad), Contains(sentence));
}

}  // namespace

TEST_CASE("shapes that do not fit", "[attention][errors]") {
  Array small(Bool, {1, 2, 3, 4}), short_mask(Bool, {1, 2, 4, 3}), one_head(Bool, {1, 1, 4, 4});
  expect("mask: expected at least [1, 2, 4, 4], got [1, 2, 3, 4]",
         [&](auto& one) { one.args.mask = small.view(); });
  expect("mask: expected at least [1, 2, 4, 4], got [1, 2, 4, 3]",
         [&](auto& one) { one.args.mask = short_mask.view(); });
  expect("mask: expected at least [1, 2, 4, 4], got [1, 1, 4, 4]",
         [&](auto& one) { one.args.mask = one_head.view(); });
  expect("q: expected shape [batch, heads, seq, dim], got [2, 200, 32]", [](auto& one) {
    one.args.q.shape.erase(one.args.q.shape.begin());
    one.args.q.strides.erase(one.args.q.strides.begin());
  });
  expect("v: expected shape [1, 2, 256, 32], got [1, 2, 255, 32]",
         [](auto& one) { one.args.v.shape[2] = 255; });
  expect("k: expected shape [1, 2, 256, 32], got [1, 2, 256, 16]",
         [](auto& one) { one.args.k.shape[3] = 16; });
  expect("heads: expected a multiple of the 2 heads of k and v, got 1",
         [](auto& one) { one.args.q.shape[1] = one.args.o.shape[1] = 1; });
}

TEST_CASE("missing, surplus and mistyped arguments", "[attention][errors]") {
  expect("mask: missing", [](auto& one) { one.args.mask.reset(); });
  expect("mask: expected dtype bool, got i8", [](auto& one) { one.args.mask->dtype = I8; });
  expect("o: expected dtype f16, got f32", [](auto& one) { one.args.o.dtype = F32; });
  expect("lse: given, but the kernel was compiled without it",
         [](auto& one) { one.args.lse = one.lse.view(); });
  AttentionConfig lists = config(), dense = config(), lse = config();
  lists.form = BlockForm::Lists;
  dense.form = BlockForm::Dense;
  lse.lse = true;
  expect(
      "counts: missing", [](auto& one) { one.args.counts.reset(); }, lists);
  expect(
      "indices: expected dtype i32, got i64", [](auto& one) { one.args.indices->dtype = I64; },
      lists);
  expect(
      "counts, indices: expected as many rows in both, got 4 and 5",
      [](auto& one) { one.args.indices->shape[2] = 5; }, lists);
  expect(
      "mask: given, but the kernel was compiled without one",
      [](auto& one) { one.args.mask = one.mask.view(); }, dense);
  expect(
      "lse: expected shape [1, 2, 200], got [1, 2, 199]",
      [](auto& one) { one.args.lse->shape[2] = 199; }, lse);
  expect(
      "lse: missing", [](auto& one) { one.args.lse.reset(); }, lse);
}

TEST_CASE("a scale that is no scale", "[attention][errors]") {
  for (float scale : {0.0f, -0.5f, INFINITY, NAN})
    expect("scale: expected a finite number above 0", [&](auto& one) { one.args.scale = scale; });
}

TEST_CASE("configurations that cannot be", "[attention][errors]") {
  expect_config("dtype: expected f16, bf16 or f32, got f64", [](auto& c) { c.dtype = F64; });
  expect_config("head_dim: expected a multiple of 16 from 16 to 256, got 40",
                [](auto& c) { c.head_dim = 40; });
  expect_config("head_dim_v: expected a multiple of 16 from 16 to 256, got 8",
                [](auto& c) { c.head_dim_v = 8; });
  expect_config("block: expected a multiple of 16 from 16 to 128, got 256",
                [](auto& c) { c.block = 256; });
  expect_config("block: expected a multiple of 16 from 16 to 128, got 64x40", [](auto& c) {
    c.block = {64, 40};
  });
  expect_config("block_n: expected a multiple of 16 that divides the block's 64 keys, got 48",
                [](auto& c) { c.block_n = 48; });
  expect_config("stages: expected 0 to 8, or -1 to choose, got -2", [](auto& c) { c.stages = -2; });
}
