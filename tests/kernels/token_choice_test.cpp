// token_choice: the worked examples, then against plain loops on packed sequences with poison
// wherever nothing is read.
#include "kernels/infllmv2/token_choice.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <random>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/entry_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using Cells = std::vector<double>;

namespace {

constexpr double kInf = INFINITY;
constexpr double kMark = -1024;  // of what a run is to write

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// One query, whose own block is `own`.
Cells choice_of(TokenChoiceConfig config, int64_t own, const Cells& scores,
                const Cells& importance = {}) {
  const auto blocks = static_cast<int64_t>(scores.size());
  Array given(F32, {1, 1, blocks}, scores), indices(I32, {1, 1, config.topk});
  Array ends(I32, {2}, Cells{0, 1});
  Array cache(I32, {1}, Cells{static_cast<double>(own * config.block)});
  TokenChoiceArgs args{given.view(), ends.view(), cache.view(), indices.view()};
  args.max_seqlen = 1;
  const auto count = static_cast<int64_t>(importance.size());
  Array importances(F32, {1, 1, std::max<int64_t>(count, 1)});
  Array windows(I32, {2}, Cells{0, static_cast<double>(count)});
  for (int64_t i = 0; i < count; ++i) importances.set(i, importance[static_cast<size_t>(i)]);
  if (config.nosa) {
    args.importance = importances.view();
    args.cu_windows = windows.view();
  }
  token_choice(device("host"), config)(args);
  CHECK(indices.values() == token_choice_reference(config, args));
  return indices.values();
}

struct ChoiceCase {
  TokenChoiceConfig config;
  std::vector<int64_t> queries, histories;
  Array scores, ends, caches, importance, windows, indices;
  bool ties;

  ChoiceCase(const TokenChoiceConfig& given, const std::vector<int64_t>& of,
             const std::vector<int64_t>& behind, int64_t heads, std::mt19937_64& random)
      : config(given), queries(of), histories(behind), ties(draw(random, 0, 1)) {
    const auto batch = static_cast<int64_t>(of.size());
    ends = windows = Array(I32, {batch + 1});
    caches = Array(I32, {batch}, Cells(behind.begin(), behind.end()));
    int64_t tokens = 0, blocks = 1, most = 0;
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t keys = of[b] + behind[b];
      const int64_t there = std::max<int64_t>(0, keys / config.stride - 1);
      tokens += of[b];
      ends.set(b + 1, static_cast<double>(tokens));
      windows.set(b + 1, windows.get(b) + static_cast<double>(there));
      blocks = std::max(blocks, (keys + config.block - 1) / config.block);
      most = std::max(most, there);
    }
    scores = Array(F32, {heads, tokens + 2, blocks});  // two tokens of nobody
    indices = Array(I32, {heads, tokens + 2, config.topk});
    importance = Array(F32, {heads, batch, most + 1});
    fill(importance, NAN);
    fill(scores, NAN);
    const auto value = [&]() -> double {
      if (draw(random, 0, 9) == 0) return draw(random, 0, 1) ? -kInf : kInf;
      return ties ? static_cast<double>(draw(random, 0, 2))
                  : std::normal_distribution<float>()(random);
    };
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t i = 0; i < of[b]; ++i)
          for (int64_t n = 0; n < blocks; ++n)
            scores.set((h * (tokens + 2) + static_cast<int64_t>(ends.get(b)) + i) * blocks + n,
                       n <= (behind[b] + i) / config.block ? value() : draw(random, 0, 1) * kInf);
        for (int64_t w = 0; w < windows.get(b + 1) - windows.get(b); ++w)
          importance.set((h * batch + b) * (most + 1) + w, value());
      }
  }
  TokenChoiceArgs args() {
    TokenChoiceArgs all{scores.view(), ends.view(), caches.view(), indices.view()};
    for (int64_t length : queries) all.max_seqlen = std::max(all.max_seqlen, length);
    if (!config.nosa) return all;
    all.importance = importance.view();
    all.cu_windows = windows.view();
    return all;
  }
  void run(Device& device) {
    fill(indices, kMark);
    const TokenChoice choose = token_choice(device, config);
    kiln::testing::run_on(device, *choose.executable(), choose.bind(args()));
  }
  void check(Device& device) {
    run(device);
    INFO("topk " << config.topk << (config.nosa ? ", nosa, on " : ", on ") << device.name());
    Cells expected = token_choice_reference(config, args());
    const int64_t tokens = indices.shape()[1];
    for (int64_t h = 0; h < indices.shape()[0]; ++h)
      for (int64_t i = (tokens - 2) * config.topk; i < tokens * config.topk; ++i)
        expected[static_cast<size_t>(h * tokens * config.topk + i)] = kMark;  // of nobody
    CHECK(indices.values() == expected);
  }
};

TokenChoiceConfig unforced(int64_t topk) {
  return {.topk = topk, .init = 0, .local = 0, .local_inclusive = false};
}

ChoiceCase random_case(std::mt19937_64& random, int64_t longest) {
  TokenChoiceConfig config;
  config.init = draw(random, 0, 2);
  config.local = draw(random, 0, 2);
  config.local_inclusive = draw(random, 0, 1);
  config.nosa = draw(random, 0, 1);
  config.stride = int64_t{1} << draw(random, 1, 3);
  config.block = config.stride * draw(random, 1, 4);
  config.select = draw(random, 1, 4);
  config.topk = config.init + config.local + config.select + draw(random, 0, 5);
  std::vector<int64_t> queries, histories;
  for (int64_t b = draw(random, 1, 3); b > 0; --b) {
    queries.push_back(draw(random, 0, 3) ? draw(random, 1, 12) : 0);
    histories.push_back(draw(random, 0, 1) ? draw(random, 0, longest) : 0);
  }
  return {config, queries, histories, draw(random, 1, 2), random};
}

}  // namespace

TEST_CASE("token_choice: the worked examples", "[token_choice]") {
  CHECK(choice_of(unforced(5), 6, {kInf, .3, .9, .2, .5, kInf, kInf, -kInf}) ==
        Cells{0, 2, 4, 5, 6});
  CHECK(choice_of(unforced(4), 1, {kInf, kInf, -kInf, -kInf, -kInf}) == Cells{0, 1, -1, -1});
  // All that is there, if that is less than a list holds; a tie goes by the lower block.
  CHECK(choice_of(unforced(5), 2, {.5, .5, .5}) == Cells{0, 1, 2, -1, -1});
  CHECK(choice_of(unforced(2), 3, {.5, .7, .5, .5}) == Cells{0, 1});
}

TEST_CASE("token_choice: NOSA's worked example", "[token_choice]") {
  // Windows as long as a block: of each block the larger of its own and the one before it; so the
  // importances rise where they are to stay, and the example's own are those of single blocks.
  TokenChoiceConfig config{
      .topk = 6, .block = 64, .init = 1, .local = 1, .nosa = true, .select = 2, .stride = 64};
  const Cells scores = {kInf, .2, .9, .3, .8, .1, kInf, kInf, -kInf};
  // The first stage takes 0, 2, 6 and 7; the second 1 and 3 besides, as in the example.
  CHECK(choice_of(config, 7, scores, {.5, .9, .1, .8, .2, .15, .4, .3, .95}) ==
        Cells{0, 1, 2, 3, 6, 7});
  // Scores of 0 in the future take no place: neither by the first stage nor by the second.
  const Cells none(9, 0.0);
  CHECK(choice_of(config, 2, none, Cells(9, 0.0)) == Cells{0, 1, 2, -1, -1, -1});
}

TEST_CASE("token_choice: any packed batch", "[token_choice]") {
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 24 : 3); ++round)
      random_case(random, name == "host" ? 400 : 60).check(device(name));
}

TEST_CASE("token_choice: a sequence's lists are its own, a token's the step's", "[token_choice]") {
  std::mt19937_64 random(run_seed());
  for (bool nosa : {false, true}) {
    TokenChoiceConfig config{.topk = 8, .block = 16, .init = 1, .local = 1, .nosa = nosa};
    config.select = 3;
    ChoiceCase all(config, {5, 40}, {30, 100}, 1, random);
    all.run(fast_device());
    // The last token of the second sequence as a decode step alone.
    ChoiceCase one(config, {1}, {139}, 1, random);
    const int64_t blocks = all.scores.shape()[2], windows = one.importance.shape()[2];
    for (int64_t n = 0; n < blocks; ++n) one.scores.set(n, all.scores.get(44 * blocks + n));
    REQUIRE(windows == all.importance.shape()[2]);
    for (int64_t w = 0; w < windows; ++w) one.importance.set(w, all.importance.get(windows + w));
    one.run(fast_device());
    for (int64_t i = 0; i < 8; ++i) CHECK(one.indices.get(i) == all.indices.get(44 * 8 + i));
  }
}

TEST_CASE("token_choice: mistakes are sentences", "[token_choice][errors]") {
  const auto config = [&](const char* sentence, const std::function<void(TokenChoiceConfig&)>& to) {
    TokenChoiceConfig given;
    to(given);
    CHECK_THROWS_WITH(token_choice(device("host"), given), Contains(sentence));
  };
  config(
      "topk: expected at least the 18 blocks that are forced (init 1, local 16 and its own), got "
      "17",
      [](auto& c) { c.topk = 17; });
  config("topk: expected 1 to 128, got 129", [](auto& c) { c.topk = 129; });
  config("stride: expected a divisor of the block's 64 tokens, got 48",
         [](auto& c) { c.nosa = true, c.stride = 48; });
  config("select: expected init + local + select to be 18 (what is forced) to 64 (topk), got 65",
         [](auto& c) { c.nosa = true, c.select = 48; });
  std::mt19937_64 random(1);
  const auto call = [&](const char* sentence, const std::function<void(TokenChoiceArgs&)>& spoil) {
    TokenChoiceConfig given;
    given.nosa = true;
    ChoiceCase one(given, {4}, {100}, 2, random);
    TokenChoiceArgs args = one.args();
    spoil(args);
    CHECK_THROWS_WITH(token_choice(device("host"), given)(args), Contains(sentence));
  };
  call("indices: expected shape [2, 6, 64], got [2, 6, 63]",
       [](auto& a) { a.indices.shape[2] = 63; });
  call("importance: missing", [](auto& a) { a.importance.reset(); });
  call("importance: expected shape [2, 1, 6], got [1, 1, 6]",
       [](auto& a) { a.importance->shape[0] = 1; });
  call("cu_windows: expected shape [2], got [1]", [](auto& a) { a.cu_windows->shape[0] = 1; });
  call("cache_lens: expected shape [1], got [2]", [](auto& a) { a.cache_lens.shape[0] = 2; });
}
