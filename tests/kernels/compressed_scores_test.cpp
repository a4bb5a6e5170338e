// compressed_scores: against float64, on packed sequences with history, poison behind each end.
#include "kernels/infllmv2/compressed_scores.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>

#include "ir/error.h"
#include "kernels/compare.h"
#include "kernels/infllmv2/pooling.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/entry_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

constexpr double kMark = -1024;                                // of what a run is to write
constexpr AccuracyRule kScores{.row = 2e-4, .element = 2e-4};  // products and sums in f32

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct Sequence {
  int64_t queries, history;
};

struct CompressedCase {
  CompressedConfig config;
  std::vector<Sequence> sequences;
  int64_t heads_kv, most = 1;
  Array q, keys, coarse, ends, windows, coarse_windows, caches, scores;

  CompressedCase(const CompressedConfig& given, const std::vector<Sequence>& of, int64_t heads,
                 std::mt19937_64& random)
      : config(given), sequences(of), heads_kv(heads) {
    const auto batch = static_cast<int64_t>(of.size());
    ends = Array(I32, {batch + 1}), windows = Array(I32, {batch + 1});
    coarse_windows = Array(I32, {batch + 1}), caches = Array(I32, {batch});
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t all = of[b].queries + of[b].history;
      const int64_t fine = count(all, config.window, config.stride);
      most = std::max(most, fine + 2);
      ends.set(b + 1, ends.get(b) + static_cast<double>(of[b].queries));
      caches.set(b, static_cast<double>(of[b].history));
      windows.set(b + 1, windows.get(b) + static_cast<double>(fine));
      coarse_windows.set(
          b + 1, coarse_windows.get(b) +
                     static_cast<double>(count(all, config.coarse_window, config.coarse_stride)));
    }
    const auto make = [&](const Array& of_each, int64_t of_heads) {
      const auto rows = static_cast<int64_t>(of_each.get(batch));
      Array array(config.dtype, {rows + 3, of_heads, config.head_dim});
      fill(array, NAN);  // of nobody, behind
      std::normal_distribution<double> normal;
      for (int64_t i = 0; i < rows * of_heads * config.head_dim; ++i) array.set(i, normal(random));
      return array;
    };
    q = make(ends, heads_kv * config.group);
    keys = make(windows, heads_kv);
    coarse = make(coarse_windows, heads_kv);
    scores = Array(F32, {heads_kv, q.shape()[0], most});
  }
  static int64_t count(int64_t tokens, int64_t window, int64_t stride) {
    return windows_of(MeanPoolConfig{.window = window, .stride = stride}, tokens);
  }
  CompressedArgs args() {
    CompressedArgs args{q.view(),       keys.view(),   ends.view(),
                        windows.view(), caches.view(), scores.view()};
    if (config.coarse) args.coarse_keys = coarse.view(), args.cu_coarse = coarse_windows.view();
    for (const Sequence& one : sequences) args.max_seqlen = std::max(args.max_seqlen, one.queries);
    return args;
  }
  void run(Device& device) {
    fill(scores, kMark);
    const CompressedScores call = compressed_scores(device, config);
    kiln::testing::run_on(device, *call.executable(), call.bind(args()));
  }
  void check(Device& device) {
    run(device);
    std::string text = fmt::format("group {} dim {} coarse {} causal {} on {}:", config.group,
                                   config.head_dim, config.coarse, config.causal, device.name());
    for (const Sequence& one : sequences) text += fmt::format(" {}+{}", one.history, one.queries);
    INFO(text);
    std::vector<double> expected = compressed_reference(config, args());
    const int64_t tokens = q.shape()[0];
    const auto last = static_cast<int64_t>(ends.get(ends.size() - 1));
    for (int64_t h = 0; h < heads_kv; ++h)
      for (int64_t i = last * most; i < tokens * most; ++i)
        expected[static_cast<size_t>(h * tokens * most + i)] = kMark;
    const Comparison result = compare(scores.values(), expected, most, kScores);
    INFO(result.str());
    CHECK(result.ok());
  }
  double score(int64_t h, int64_t token, int64_t window) const {
    return scores.get((h * q.shape()[0] + token) * most + window);
  }
};

}  // namespace

TEST_CASE("compressed_scores: any packed batch, group and history", "[compressed]") {
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 14 : 2); ++round) {
      const int64_t groups[] = {1, 2, 7, 8, 16, 64}, dims[] = {16, 64, 80, 128};
      CompressedConfig config{.dtype = draw(random, 0, 1) ? F16 : BF16,
                              .head_dim = dims[draw(random, 0, name == "host" ? 3 : 1)],
                              .group = groups[draw(random, 0, name == "host" ? 5 : 3)]};
      config.causal = draw(random, 0, 3) > 0;
      config.coarse = draw(random, 0, 2) == 0;
      const int64_t most = name == "host" ? 40 : 9;
      std::vector<Sequence> sequences;
      for (int64_t b = draw(random, 1, 3); b > 0; --b)
        sequences.push_back({draw(random, 0, 2) ? draw(random, 0, most) : 1,
                             draw(random, 0, 2) ? draw(random, 0, 1500) : draw(random, 0, 40)});
      CompressedCase(config, sequences, draw(random, 1, 2), random).check(device(name));
    }
}

TEST_CASE("compressed_scores: a window is seen from its last token on", "[compressed]") {
  // Of 64 tokens three windows; which rows see how many, and a history that is no multiple of 16.
  std::mt19937_64 random(run_seed());
  const auto seen = [&](CompressedCase& c, int64_t i) {
    int64_t n = 0;
    for (int64_t m = 0; m < c.most; ++m) n += c.score(0, i, m) > 0;
    return n;
  };
  CompressedCase whole({.head_dim = 16, .group = 2}, {{64, 0}}, 1, random);
  whole.check(fast_device());
  const std::vector<std::pair<int64_t, int64_t>> expected = {{0, 0},  {15, 0}, {30, 0}, {31, 1},
                                                             {46, 1}, {47, 2}, {62, 2}, {63, 3}};
  for (auto [row, windows] : expected) CHECK(seen(whole, row) == windows);
  for (auto [queries, history] : {std::pair(47, 0), std::pair(32, 8), std::pair(64, 1),
                                  std::pair(31, 16), std::pair(8, 40), std::pair(40, 24)}) {
    CompressedCase c({.head_dim = 16, .group = 3}, {{queries, history}}, 1, random);
    c.check(fast_device());
    for (int64_t i = 0; i < queries; ++i)
      CHECK(seen(c, i) == (i + history < 31 ? 0 : (i + history - 31) / 16 + 1));
  }
}

TEST_CASE("compressed_scores: exact rows add up to the group", "[compressed]") {
  // 711 queries of groups of 8 and 7: shapes that the public kernel gets wrong.
  std::mt19937_64 random(run_seed());
  for (int64_t group : {8, 7}) {
    CompressedCase c({.head_dim = 16, .group = group}, {{711, 0}}, 2, random);
    c.run(fast_device());
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i : {0, 30, 31, 400, 710}) {
        double sum = 0;
        for (int64_t m = 0; m < c.most; ++m) sum += c.score(h, i, m);
        CHECK(sum == Approx(i < 31 ? 0 : group).epsilon(1e-4));
      }
  }
}

TEST_CASE("compressed_scores: chunks of queries, and one alone, score alike", "[compressed]") {
  std::mt19937_64 random(run_seed());
  CompressedCase all({.head_dim = 32, .group = 5}, {{100, 60}}, 1, random);
  all.run(fast_device());
  for (auto [done, chunk] : {std::pair(0, 33), std::pair(33, 66), std::pair(99, 1)}) {
    CompressedCase part(all.config, {{chunk, 60 + done}}, 1, random);
    part.most = all.most;
    part.scores = Array(F32, {1, part.q.shape()[0], all.most});
    part.keys = all.keys, part.windows = all.windows;
    for (int64_t i = 0; i < chunk * 5 * 32; ++i) part.q.set(i, all.q.get(done * 5 * 32 + i));
    part.run(fast_device());
    for (int64_t i = 0; i < chunk; ++i)
      for (int64_t m = 0; m < all.most; ++m)
        REQUIRE(part.score(0, i, m) ==
                Approx(all.score(0, done + i, m)).epsilon(1e-5).margin(1e-7));
  }
}

TEST_CASE("compressed_scores: mistakes are sentences", "[compressed][errors]") {
  std::mt19937_64 random(1);
  const auto config = [&](const char* sentence,
                          const std::function<void(CompressedConfig&)>& spoil) {
    CompressedConfig bad;
    spoil(bad);
    CHECK_THROWS_WITH(compressed_scores(device("host"), bad), Contains(sentence));
  };
  config("group: expected 1 to 64, got 65", [](auto& c) { c.group = 65; });
  config("head_dim: expected a multiple of 16 from 16 to 256, got 20",
         [](auto& c) { c.head_dim = 20; });
  config("dtype: expected f16 or bf16, got f32", [](auto& c) { c.dtype = F32; });
  const auto call = [&](const char* sentence, const std::function<void(CompressedArgs&)>& spoil) {
    CompressedCase one({.head_dim = 16, .group = 2}, {{4, 60}}, 2, random);
    CompressedArgs args = one.args();
    spoil(args);
    CHECK_THROWS_WITH(compressed_scores(device("host"), one.config)(args), Contains(sentence));
  };
  call("q: expected shape [7, 4, 16], got [7, 3, 16]", [](auto& a) { a.q.shape[1] = 3; });
  call("cu_windows: expected shape [2], got [1]", [](auto& a) { a.cu_windows.shape[0] = 1; });
  call("scores: expected shape [2, 7, 5], got [2, 6, 5]", [](auto& a) { a.scores.shape[1] = 6; });
  call("coarse_keys: given, but the kernel was compiled without coarse",
       [](auto& a) { a.coarse_keys = a.keys; });
  call("scale: expected a finite number above 0, got 0", [](auto& a) { a.scale = 0.0F; });
}
