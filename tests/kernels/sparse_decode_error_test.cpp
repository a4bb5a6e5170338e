// What a caller of sparse decode gets wrong is a sentence that names it.
#include <catch2/catch.hpp>
#include <functional>

#include "ir/error.h"
#include "tests/kernels/sparse_decode_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

DecodeConfig with(const std::function<void(DecodeConfig&)>& change = {}) {
  DecodeConfig config{.head_dim = 64, .head_dim_v = 32, .block = 32};
  if (change) change(config);
  return config;
}

void expect(const char* sentence, const DecodeConfig& config,
            const std::function<void(SparseDecodeCase&)>& spoil) {
  SparseDecodeCase one(config, {.batch = 2, .heads_kv = 2, .room = 100, .entries = 3});
  spoil(one);
  INFO(sentence);
  CHECK_THROWS_AS(check(one.config, one.args), UserError);
  CHECK_THROWS_WITH(check(one.config, one.args), Contains(sentence));
}

}  // namespace

TEST_CASE("decode: shapes and dtypes that do not fit", "[decode][errors]") {
  const DecodeConfig plain = with(), two = with([](auto&c) { c.tokens = 2; });
  expect("q: expected 8 heads, 4 for each of k's 2, got 6", plain,
         [](auto& one) { one.args.q.shape[2] = 6; });
  expect("q: expected shape [batch, tokens, heads, dim], got [2, 8, 64]", two, [](auto& one) {
    one.args.q.shape.erase(one.args.q.shape.begin() + 1);
    one.args.q.strides.erase(one.args.q.strides.begin() + 1);
  });
  expect("q: expected shape [2, 2, 8, 64], got [2, 3, 8, 64]", two,
         [](auto& one) { one.args.q.shape[1] = 3; });
  expect("k: expected shape [2, 100, 2, 64], got [2, 100, 2, 48]", plain,
         [](auto& one) { one.args.k.shape[3] = 48; });
  expect("v: expected shape [2, 100, 2, 32], got [2, 99, 2, 32]", plain,
         [](auto& one) { one.args.v.shape[1] = 99; });
  expect("o: expected shape [2, 1, 8, 32], got [1, 1, 8, 32]", plain,
         [](auto& one) { one.args.o.shape[0] = 1; });
  expect("k: expected dtype f16, got bf16", plain, [](auto& one) { one.args.k.dtype = BF16; });
  expect("lengths: expected dtype i32, got i64", plain,
         [](auto& one) { one.args.lengths.dtype = I64; });
  expect("lengths: expected shape [2], got [3]", plain,
         [](auto& one) { one.args.lengths.shape[0] = 3; });
}

TEST_CASE("decode: missing and surplus arguments", "[decode][errors]") {
  const DecodeConfig plain = with(), paged = with([](auto&c) { c.page = 32; });
  expect("chosen: missing", plain, [](auto& one) { one.args.chosen.reset(); });
  expect("table: missing", paged, [](auto& one) { one.args.table.reset(); });
  expect("table: given, but the kernel was compiled without it", plain,
         [](auto& one) { one.args.table = one.table.view(); });
  expect("starts: given, but the kernel was compiled without it", plain,
         [](auto& one) { one.args.starts = one.starts.view(); });
  expect("starts: missing", with([](auto& c) { c.left_pad = true; }),
         [](auto& one) { one.args.starts.reset(); });
  expect("k_scale: given, but the kernel was compiled without it", plain,
         [](auto& one) { one.args.k_scale = one.k_scale.view(); });
  const DecodeConfig fp8 = with([](auto& c) { c.fp8_cache = true; });
  expect("v_scale: missing", fp8, [](auto& one) { one.args.v_scale.reset(); });
  expect("k_scale: expected shape [1] or [2], got [3, 1]", fp8,
         [](auto& one) { one.args.k_scale->shape = {3}; });
  expect("k: expected dtype e4m3, got f16", fp8, [](auto& one) { one.args.k.dtype = F16; });
  expect("lse: missing", with([](auto& c) { c.lse = true; }),
         [](auto& one) { one.args.lse.reset(); });
  expect("chosen: given, but the kernel was compiled without it",
         with([](auto& c) { c.form = DecodeForm::Dense; }),
         [](auto& one) { one.args.chosen = one.chosen.view(); });
}

TEST_CASE("decode: page tables, selections and splits that do not fit", "[decode][errors]") {
  const DecodeConfig plain = with(), paged = with([](auto&c) { c.page = 32; });
  const DecodeConfig mask = with([](auto& c) { c.form = DecodeForm::MaskI8; });
  expect("k: expected shape [11, 32, 2, 64], got [11, 64, 2, 64]", paged,
         [](auto& one) { one.args.k.shape[1] = 64; });
  expect("table: expected shape [2, 4], got [1, 4]", paged,
         [](auto& one) { one.args.table->shape[0] = 1; });
  expect("table: expected dtype i32, got i64", paged,
         [](auto& one) { one.args.table->dtype = I64; });
  expect("chosen: expected dtype i8, got bool", mask,
         [](auto& one) { one.args.chosen->dtype = Bool; });
  expect("chosen: expected at least 4 entries for the blocks of 100 keys, got 3", mask,
         [](auto& one) { one.args.chosen->shape[3] = 3; });
  expect("chosen: expected shape [2, 1, 2, 3], got [2, 2, 2, 3]", plain,
         [](auto& one) { one.args.chosen->shape[1] = 2; });
  expect("splits: expected 1 to 128, got 129", plain, [](auto& one) { one.args.splits = 129; });
  expect("splits: expected 1 to 128, got 0", plain, [](auto& one) { one.args.splits = 0; });
  expect("splits: expected none with batch_invariant, which chooses them", plain, [](auto& one) {
    one.args.splits = 2;
    one.args.batch_invariant = true;
  });
  expect("splits: expected at most 1024 blocks of keys each, got 1100", plain, [](auto& one) {
    one.args.splits = 1;
    one.args.chosen->shape[3] = 1100;
    one.args.k.shape[1] = one.args.v.shape[1] = 40000;
  });
  expect("scale: expected a finite number above 0", plain,
         [](auto& one) { one.args.scale = -1.0f; });
}

TEST_CASE("decode: configurations that cannot be", "[decode][errors]") {
  const auto expect_config = [](const char* sentence,
                                const std::function<void(DecodeConfig&)>& spoil) {
    CHECK_THROWS_WITH(validated(with(spoil)), Contains(sentence));
    CHECK_THROWS_AS(sparse_decode(device("host"), with(spoil)), UserError);
  };
  expect_config("dtype: expected f16 or bf16, got f32", [](auto& c) { c.dtype = F32; });
  expect_config("head_dim: expected a multiple of 16 from 16 to 256, got 40",
                [](auto& c) { c.head_dim = 40; });
  expect_config("head_dim_v: expected a multiple of 16 from 16 to 256, got 272",
                [](auto& c) { c.head_dim_v = 272; });
  expect_config("group: expected 1 to 1024, got 0", [](auto& c) { c.group = 0; });
  expect_config("tokens: expected 1 to 8, got 9", [](auto& c) { c.tokens = 9; });
  expect_config("block: expected a multiple of 16 from 16 to 128, got 256",
                [](auto& c) { c.block = 256; });
  expect_config("page: expected a multiple of 16 from 16 to 65536, got 8",
                [](auto& c) { c.page = 8; });
  expect_config("stages: expected 0 to 8, got -1", [](auto& c) { c.stages = -1; });
  expect_config("threads: expected 0 or a multiple of 32 up to 1024, got 33",
                [](auto& c) { c.threads = 33; });
  expect_config("per_token: expected false without a selection, got true", [](auto& c) {
    c.form = DecodeForm::Dense;
    c.per_token = true;
  });
}
