// Sparse decode against float64: random problems on every device.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>

#include "tests/kernels/attention_case.h"
#include "tests/kernels/sparse_decode_case.h"

using namespace kiln;
using namespace kiln::test;

namespace {

template <class T>
T pick(std::mt19937_64& random, std::initializer_list<T> from) {
  return from.begin()[random() % from.size()];
}

DecodeConfig random_config(std::mt19937_64& random) {
  DecodeConfig c;
  c.dtype = pick(random, {F16, BF16});
  c.head_dim = pick<int64_t>(random, {64, 80, 96, 128, 192, 256});
  c.head_dim_v = pick<int64_t>(random, {c.head_dim, c.head_dim, 64, 128});
  c.group = pick<int64_t>(random, {1, 4, 7, 8, 16});
  c.tokens = pick<int64_t>(random, {1, 1, 2, 5, 8});
  c.block = pick<int64_t>(random, {16, 32, 48, 64, 128});
  c.page = pick<int64_t>(random, {0, 0, 16, 32, 64, 128});
  c.form = pick(random,
                {DecodeForm::Indices, DecodeForm::MaskBool, DecodeForm::MaskI8, DecodeForm::Dense});
  c.per_token = c.form != DecodeForm::Dense && random() % 2;
  c.left_pad = random() % 4 == 0;
  c.lse = random() % 2;
  c.split = random() % 4 != 0;
  c.fp8_cache = random() % 4 == 0;
  c.checked = random() % 4 == 0;
  return c;
}

DecodeProblem random_problem(std::mt19937_64& random, int64_t limit) {
  return {.batch = pick<int64_t>(random, {1, 2, 3}),
          .heads_kv = pick<int64_t>(random, {1, 2}),
          .room = std::min(limit, pick<int64_t>(random, {1, 15, 64, 65, 130, 200, 300})),
          .entries = pick<int64_t>(random, {1, 3, 9}),
          .layout = pick(random, {CacheLayout::Nhd, CacheLayout::Hnd, CacheLayout::Interleaved})};
}

}  // namespace

TEST_CASE("decode: random problems", "[decode][random]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices()) {
    const bool fast = where == "host";
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(fast ? 8 : 4);
    for (int round = 0; round < 3 || std::chrono::steady_clock::now() < end; ++round) {
      SparseDecodeCase one(random_config(random), random_problem(random, fast ? 300 : 100));
      one.randomize(random);
      one.fill_cache(random, pick<double>(random, {NAN, INFINITY, 1e4}));
      if (one.config.split && random() % 2)
        one.args.splits = pick<int64_t>(random, {1, 2, 3, 7, 128});
      else if (one.config.split)
        one.args.batch_invariant = random() % 2;
      one.check(device(where));
    }
  }
}
