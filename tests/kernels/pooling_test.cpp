// mean_pool and max_pool: against float64, on packed sequences with poison wherever nothing is
// read.
#include "kernels/infllmv2/pooling.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>

#include "ir/error.h"
#include "kernels/compare.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/entry_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using Cells = std::vector<double>;

namespace {

constexpr double kMark = -1024;  // of what a run is to write

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

Array ends_of(const std::vector<int64_t>& lengths) {
  Array ends(I32, {static_cast<int64_t>(lengths.size()) + 1});
  for (size_t b = 0; b < lengths.size(); ++b)
    ends.set(static_cast<int64_t>(b) + 1,
             ends.get(static_cast<int64_t>(b)) + static_cast<double>(lengths[b]));
  return ends;
}

struct MeanCase {
  MeanPoolConfig config;
  std::vector<int64_t> lengths;
  Array x, ends, pooled, cu_windows;

  MeanCase(const MeanPoolConfig& given, const std::vector<int64_t>& of, int64_t heads,
           std::mt19937_64& random)
      : config(given), lengths(of), ends(ends_of(of)) {
    int64_t tokens = 3, windows = 2;  // a few of nobody
    for (int64_t length : lengths) tokens += length, windows += windows_of(config, length);
    x = Array(config.dtype, {tokens, heads, config.head_dim});
    pooled = Array(config.dtype, {windows, heads, config.head_dim});
    cu_windows = Array(I32, ends.shape());
    fill(x, NAN);
    std::normal_distribution<double> normal;
    for (size_t b = 0; b < lengths.size(); ++b) {
      const int64_t n = windows_of(config, lengths[b]);
      const auto begin = static_cast<int64_t>(ends.get(static_cast<int64_t>(b)));
      const int64_t read = n ? (n - 1) * config.stride + config.window : 0;
      for (int64_t i = 0; i < read * heads * config.head_dim; ++i)
        x.set(begin * heads * config.head_dim + i, normal(random));
    }
  }
  MeanPoolArgs args() {
    int64_t longest = 0;
    for (int64_t length : lengths) longest = std::max(longest, length);
    return {x.view(), ends.view(), pooled.view(), cu_windows.view(), longest};
  }
  void run(Device& device) {
    fill(pooled, kMark);
    fill(cu_windows, kMark);
    const MeanPool pool = mean_pool(device, config);
    kiln::testing::run_on(device, *pool.executable(), pool.bind(args()));
  }
  void check(Device& device) {
    run(device);
    INFO("on " << device.name());
    const MeanPoolReference expected = mean_pool_reference(config, args());
    CHECK(cu_windows.values() == expected.cu_windows);
    const auto written = static_cast<size_t>(cu_windows.get(cu_windows.size() - 1)) *
                         static_cast<size_t>(pooled.shape()[1] * config.head_dim);
    Cells got = pooled.values(), wanted = expected.pooled;
    for (size_t i = written; i < got.size(); ++i) CHECK(got[i] == kMark);
    got.resize(written);
    wanted.resize(written);
    const Comparison result = compare(got, wanted, config.head_dim, accuracy_rule(config.dtype));
    INFO(result.str());
    CHECK(result.ok());
  }
};

struct MaxCase {
  MaxPoolConfig config;
  std::vector<int64_t> queries, histories;
  Array scores, ends, windows, caches, pooled;

  MaxCase(const MaxPoolConfig& given, const std::vector<int64_t>& of,
          const std::vector<int64_t>& behind, int64_t heads, std::mt19937_64& random)
      : config(given), queries(of), histories(behind), ends(ends_of(of)) {
    std::vector<int64_t> there;
    int64_t tokens = 2, most = 1, blocks = 1;
    for (size_t b = 0; b < of.size(); ++b) {
      const int64_t keys = of[b] + behind[b];
      there.push_back(windows_of({.window = 2 * config.stride, .stride = config.stride}, keys));
      tokens += of[b];
      most = std::max(most, there.back() + 1);
      blocks = std::max(blocks, (keys + config.block - 1) / config.block);
    }
    windows = ends_of(there);
    caches = Array(I32, {static_cast<int64_t>(of.size())}, Cells(behind.begin(), behind.end()));
    scores = Array(F32, {heads, tokens, most});
    pooled = Array(F32, {heads, tokens, blocks});
    fill(scores, NAN);
    for (int64_t h = 0; h < heads; ++h)
      for (size_t b = 0; b < of.size(); ++b)
        for (int64_t i = 0; i < of[b]; ++i)
          for (int64_t w = 0; w < there[b]; ++w) {
            const auto token = static_cast<int64_t>(ends.get(static_cast<int64_t>(b))) + i;
            scores.set((h * tokens + token) * most + w,
                       static_cast<double>(draw(random, -20, 20)) / 4);
          }
  }
  MaxPoolArgs args() {
    int64_t longest = 0;
    for (int64_t length : queries) longest = std::max(longest, length);
    return {scores.view(), ends.view(), windows.view(), caches.view(), pooled.view(), longest};
  }
  void run(Device& device) {
    fill(pooled, kMark);
    const MaxPool pool = max_pool(device, config);
    kiln::testing::run_on(device, *pool.executable(), pool.bind(args()));
  }
  void check(Device& device) {
    run(device);
    INFO("on " << device.name());
    Cells expected = max_pool_reference(config, args());
    const int64_t tokens = pooled.shape()[1], blocks = pooled.shape()[2];
    const auto last = static_cast<int64_t>(ends.get(ends.size() - 1));
    for (int64_t h = 0; h < pooled.shape()[0]; ++h)
      for (int64_t i = last * blocks; i < tokens * blocks; ++i)
        expected[static_cast<size_t>(h * tokens * blocks + i)] = kMark;  // of nobody
    CHECK(pooled.values() == expected);
  }
};

}  // namespace

TEST_CASE("mean_pool: any packed batch", "[pooling]") {
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 16 : 2); ++round) {
      const DType dtypes[] = {F16, BF16, F32};
      MeanPoolConfig config{.dtype = dtypes[draw(random, 0, 2)], .head_dim = draw(random, 1, 90)};
      if (draw(random, 0, 1)) {
        config.window = draw(random, 1, 40);
        config.stride = draw(random, 1, config.window);
      }
      std::vector<int64_t> lengths;
      for (int64_t b = draw(random, 1, 5); b > 0; --b)
        lengths.push_back(draw(random, 0, 3) ? draw(random, 0, 300) : draw(random, 0, 33));
      MeanCase(config, lengths, draw(random, 1, 3), random).check(device(name));
    }
}

TEST_CASE("mean_pool: lengths at every edge, and many sequences", "[pooling]") {
  std::mt19937_64 random(run_seed());
  const std::vector<int64_t> edges = {0,  1,  15,  16,  31,  32,  33,  47, 48, 63,
                                      64, 65, 127, 128, 129, 130, 200, 20, 33, 100};
  MeanCase({.head_dim = 16}, edges, 2, random).check(fast_device());
  MeanCase many({.head_dim = 4}, std::vector<int64_t>(300, 40), 1, random);
  many.check(fast_device());
  CHECK(many.cu_windows.get(300) == 300);
  CHECK(windows_of(MeanPoolConfig{}, 31) == 0);
  CHECK(windows_of(MeanPoolConfig{}, 47) == 1);
  CHECK(windows_of(MeanPoolConfig{}, 64) == 3);
}

TEST_CASE("mean_pool: a sequence's windows are its own", "[pooling]") {
  // Its result in a batch is that alone, bit by bit.
  std::mt19937_64 random(run_seed());
  MeanCase all({.head_dim = 32}, {100, 20, 333}, 2, random);
  all.run(fast_device());
  MeanCase one({.head_dim = 32}, {333}, 2, random);
  for (int64_t i = 0; i < 333 * 64; ++i) one.x.set(i, all.x.get(120 * 64 + i));
  one.run(fast_device());
  const auto before = static_cast<int64_t>(all.cu_windows.get(2));
  for (int64_t i = 0; i < one.cu_windows.get(1) * 64; ++i)
    REQUIRE(one.pooled.get(i) == all.pooled.get(before * 64 + i));
}

TEST_CASE("max_pool: the worked examples", "[pooling]") {
  // 19 windows, 5 blocks of 64: as of a sequence whose query is the 320th, or the 101st.
  const Cells scores = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8};
  const auto pooled = [&](int64_t history, int64_t init, int64_t local, bool inclusive) {
    Array given(F32, {1, 1, 19}, scores), out(F32, {1, 1, 5});
    Array ends(I32, {2}, Cells{0, 1}), windows(I32, {2}, Cells{0, 19});
    Array cache(I32, {1}, Cells{static_cast<double>(history)});
    max_pool(device("host"), {.init = init, .local = local, .local_inclusive = inclusive})(
        {given.view(), ends.view(), windows.view(), cache.view(), out.view(), 1});
    return out.values();
  };
  const double inf = INFINITY;
  CHECK(pooled(319, 1, 1, true) == Cells{inf, 9, 8, inf, inf});
  CHECK(pooled(100, 1, 0, true) == Cells{inf, inf, 8, 9, 8});
  CHECK(pooled(100, 0, 0, false) == Cells{4, 9, 8, 9, 8});
  CHECK(pooled(319, 0, 2, false) == Cells{4, 9, 8, inf, inf});
}

TEST_CASE("max_pool: any packed batch", "[pooling]") {
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 12 : 2); ++round) {
      MaxPoolConfig config;
      config.stride = int64_t{1} << draw(random, 0, 4);
      config.block = config.stride * draw(random, 1, 5);
      config.init = draw(random, 0, 2);
      config.local = draw(random, 0, 3);
      config.local_inclusive = draw(random, 0, 1);
      std::vector<int64_t> queries, histories;
      for (int64_t b = draw(random, 1, 4); b > 0; --b) {
        queries.push_back(draw(random, 0, 2) ? draw(random, 0, 40) : draw(random, 0, 1));
        histories.push_back(draw(random, 0, 1) ? draw(random, 0, 500) : 0);
      }
      MaxCase(config, queries, histories, draw(random, 1, 2), random).check(device(name));
    }
}

TEST_CASE("pooling: mistakes are sentences", "[pooling][errors]") {
  std::mt19937_64 random(1);
  const auto mean = [&](const char* sentence, const std::function<void(MeanPoolConfig&)>& spoil) {
    MeanPoolConfig config;
    spoil(config);
    CHECK_THROWS_WITH(mean_pool(device("host"), config), Contains(sentence));
  };
  mean("head_dim: expected 1 to 512, got 0", [](auto& c) { c.head_dim = 0; });
  mean("stride: expected 1 to 32, got 33", [](auto& c) { c.stride = 33; });
  mean("dtype: expected f16, bf16 or f32, got f64", [](auto& c) { c.dtype = F64; });
  const auto most = [&](const char* sentence, const std::function<void(MaxPoolConfig&)>& spoil) {
    MaxPoolConfig config;
    spoil(config);
    CHECK_THROWS_WITH(max_pool(device("host"), config), Contains(sentence));
  };
  most("stride: expected a divisor of the block's 64 tokens, got 48",
       [](auto& c) { c.stride = 48; });
  most("local: expected 0 to 1048576, got -1", [](auto& c) { c.local = -1; });
  const auto call = [&](const char* sentence, const std::function<void(MeanPoolArgs&)>& spoil) {
    MeanCase one({.head_dim = 8}, {40}, 2, random);
    MeanPoolArgs args = one.args();
    spoil(args);
    CHECK_THROWS_WITH(mean_pool(device("host"), one.config)(args), Contains(sentence));
  };
  call("cu_windows: expected shape [2], got [1]", [](auto& a) { a.cu_windows.shape[0] = 1; });
  call("cu_seqlens: expected dtype i32, got i64", [](auto& a) { a.cu_seqlens.dtype = I64; });
  call("pooled: expected shape [3, 2, 8], got [3, 1, 8]", [](auto& a) { a.pooled.shape[1] = 1; });
  call("max_seqlen: expected the longest sequence's tokens, got -1",
       [](auto& a) { a.max_seqlen = -1; });
  const auto call_max = [&](const char* sentence, const std::function<void(MaxPoolArgs&)>& spoil) {
    MaxCase one({}, {4}, {100}, 1, random);
    MaxPoolArgs args = one.args();
    spoil(args);
    CHECK_THROWS_WITH(max_pool(device("host"), one.config)(args), Contains(sentence));
  };
  call_max("cache_lens: expected shape [1], got [2]", [](auto& a) { a.cache_lens.shape[0] = 2; });
  call_max("pooled: expected shape [1, 6, 2], got [1, 5, 2]",
           [](auto& a) { a.pooled.shape[1] = 5; });
}
