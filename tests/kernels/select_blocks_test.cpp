// The choice of blocks from scores: the worked examples of XAttention, random rows, every flag.
#include "kernels/select_blocks/select_blocks.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/entry_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

using Settings = std::map<std::string, std::string>;

struct SelectSizes {
  int64_t batch = 1, heads = 1, heads_kv = 1, rows = 1, cols = 1;
};

// Scores and all that goes with them; heads_kv counts where heads are reduced.
struct SelectCase {
  SelectSizes sizes;
  Settings settings;
  Array scores, first, blocks, mask, counts, indices;
  std::optional<Array> thresholds;
  std::optional<double> amount;  // threshold or k

  SelectCase(const SelectSizes& s, Settings given)
      : sizes(s),
        settings(std::move(given)),
        scores(F32, {s.batch, s.heads, s.rows, s.cols}),
        first(I32, {s.batch}),
        blocks(I32, {s.batch}),
        mask(Bool, {s.batch, out_heads(), s.rows, s.cols}),
        counts(I32, {s.batch, out_heads(), s.rows}),
        indices(I32, {s.batch, out_heads(), s.rows, s.cols}) {
    fill(blocks, static_cast<double>(s.cols));
  }
  std::string setting(const char* name) const {
    const auto found = settings.find(name);
    return found == settings.end() ? "" : found->second;
  }
  int64_t out_heads() const {
    const std::string reduce = setting("reduce");
    return reduce.empty() || reduce == "none" ? sizes.heads : sizes.heads_kv;
  }

  void check(Device& device) {
    EntryRun run{"select_blocks", settings, {}, {{"mask", &mask}}};
    run.arguments.tensor("scores", scores).tensor("first", first).tensor("blocks", blocks);
    if (thresholds) run.arguments.tensor("thresholds", *thresholds);
    if (amount && setting("by") == "top_k")
      run.arguments.param("top_k", static_cast<int64_t>(*amount));
    else if (amount)
      run.arguments.param("threshold", *amount);
    if (setting("list") != "false") {
      run.outputs["counts"] = &counts;
      run.outputs["indices"] = &indices;
    }
    check_entry(device, run);
  }
};

// The columns chosen in each row of one head.
std::vector<std::vector<int>> chosen(const std::vector<std::vector<double>>& rows, int first,
                                     Settings settings, double threshold) {
  SelectCase c({1, 1, 1, static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())},
               std::move(settings));
  for (int64_t i = 0; i < c.scores.size(); ++i)
    c.scores.set(i, rows[i / c.sizes.cols][i % c.sizes.cols]);
  c.first.set(0, first);
  c.amount = threshold;
  for (const std::string& name : devices_and_emulator(true)) c.check(device(name));
  std::vector<std::vector<int>> result(rows.size());
  for (int64_t i = 0; i < c.mask.size(); ++i)
    if (c.mask.get(i) != 0) result[i / c.sizes.cols].push_back(static_cast<int>(i % c.sizes.cols));
  return result;
}

const Settings kRef = {{"ref_compat", "true"}}, kAll = {{"causal", "false"}},
               kRefAll = {{"ref_compat", "true"}, {"causal", "false"}};
using Rows = std::vector<std::vector<int>>;

}  // namespace

TEST_CASE("select_blocks: the worked examples, as written and as in public", "[select]") {
  const std::vector<std::vector<double>> one = {{.05, .30, .40, .15, .10}};
  CHECK(chosen(one, 4, {}, .9) == Rows{{0, 1, 2, 3, 4}});
  CHECK(chosen(one, 4, kRef, .9) == Rows{{0, 1, 2, 3, 4}});
  CHECK(chosen(one, 0, kAll, .9) == Rows{{1, 2, 3, 4}});
  CHECK(chosen(one, 0, kRefAll, .9) == Rows{{0, 1, 2, 3, 4}});

  const std::vector<std::vector<double>> square = {
      {8, 0, 0, 0}, {5, 3, 0, 0}, {1, 5, 2, 0}, {1, 2, 3, 2}};
  CHECK(chosen(square, 0, {}, .5) == Rows{{0}, {0, 1}, {0, 1, 2}, {0, 2, 3}});
  CHECK(chosen(square, 0, kRef, .5) == Rows{{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}});

  const std::vector<std::vector<double>> later = {{1, 2, 3, 2, 0, 0}, {1, .5, .5, 1, 5, 0}};
  for (const Settings& settings : {Settings{}, kRef}) {
    CHECK(chosen(later, 3, settings, .5) == Rows{{0, 2, 3}, {0, 4}});
    CHECK(chosen(later, 3, settings, .75) == Rows{{0, 2, 3}, {0, 4}});
    CHECK(chosen(later, 3, settings, .9) == Rows{{0, 1, 2, 3}, {0, 1, 3, 4}});
  }

  const std::vector<std::vector<double>> nothing(2, std::vector<double>(6, 0.0));
  CHECK(chosen(nothing, 3, {}, .9)[1] == std::vector<int>{0, 4});
  CHECK(chosen(nothing, 3, kRef, .9)[1] == std::vector<int>{0, 4});
  CHECK(chosen(nothing, 3, kAll, .9)[1].empty());
  CHECK(chosen(nothing, 3, kRefAll, .9)[1] == std::vector<int>{0});
}

TEST_CASE("select_blocks: a surplus block of the public code may have no mass", "[select]") {
  // Forced: the diagonal alone. 9 is kept whatever it is, then what follows it.
  CHECK(chosen({{3, 0, 0, 0}, {9, 0, 0, 0}, {0, 9, 1, 0}}, 0, kRef, .9)[2] ==
        std::vector<int>{0, 1, 2});
  CHECK(chosen({{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 1, 1, 0}, {0, 8, 0, 1}}, 0, kRef, .5)[3] ==
        std::vector<int>{0, 1, 3});
  // The second chunk of rows has the sink again.
  const std::vector<std::vector<double>> square = {
      {8, 0, 0, 0}, {5, 3, 0, 0}, {1, 5, 2, 0}, {1, 2, 3, 2}};
  CHECK(chosen(square, 0, {{"ref_compat", "true"}, {"ref_chunk", "2"}}, .5) ==
        Rows{{0}, {0, 1}, {0, 1, 2}, {0, 2, 3}});
  // keep_sink, meant for column 0, sets row 0.
  CHECK(chosen(square, 0, {{"ref_compat", "true"}, {"keep_sink", "true"}}, .5)[0] ==
        std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("select_blocks: sixteen ways to force and keep the sink and the diagonal", "[select]") {
  std::mt19937_64 random(run_seed());
  for (int flags = 0; flags < 16; ++flags) {
    const auto flag = [&](int bit) { return flags >> bit & 1 ? "true" : "false"; };
    SelectCase c({2, 3, 3, 5, 9}, {{"force_sink", flag(0)},
                                   {"force_diag", flag(1)},
                                   {"keep_sink", flag(2)},
                                   {"keep_recent", flag(3)}});
    for (int64_t i = 0; i < c.scores.size(); ++i)
      c.scores.set(i, static_cast<double>(random() % 9));
    c.first.set(1, 4);
    c.amount = .5;
    for (bool causal : {true, false}) {
      c.settings["causal"] = causal ? "true" : "false";
      for (const std::string& name : devices_and_emulator(false)) {
        c.check(device(name));
        for (int64_t row = 0; row < 2 * 3 * 5; ++row) {
          const int64_t diagonal = row % 5 + (row < 15 ? 0 : 4);
          if ((causal && (flags & 1)) || (flags & 4)) CHECK(c.mask.get(row * 9) == 1);
          if ((causal && (flags & 2)) || (flags & 8)) CHECK(c.mask.get(row * 9 + diagonal) == 1);
        }
      }
    }
  }
}

TEST_CASE("select_blocks: any rows, with ties, zeros, NaN, poison and fewer blocks", "[select]") {
  std::mt19937_64 random(run_seed());
  const auto of = [&](std::initializer_list<int64_t> list) {
    return *(list.begin() + random() % list.size());
  };
  for (const std::string& name : devices_and_emulator(true))
    for (int round = 0; round < (name == "host" ? 60 : 8); ++round) {
      const int64_t heads_kv = of({1, 2, 3}), group = of({1, 2, 4, 7});
      const SelectSizes sizes{of({1, 2}), heads_kv * group, heads_kv, of({1, 2, 5}),
                              of({1, 2, 3, 17, 64, 255, 256, 257, name == "host" ? 700 : 40})};
      const bool top_k = random() % 3 == 0, per_head = random() % 2 == 0;
      const auto coin = [&] { return random() % 2 ? "true" : "false"; };
      Settings settings{{"by", top_k ? "top_k" : "threshold"},
                        {"causal", coin()},
                        {"per_head", per_head ? "true" : "false"},
                        {"list", coin()},
                        {"reduce", std::array{"none", "mean", "any", "majority"}[random() % 4]}};
      if (!top_k && random() % 3 == 0) settings["ref_compat"] = "true";
      SelectCase c(sizes, settings);
      const int kind = static_cast<int>(random() % 3);
      std::normal_distribution<double> normal;
      for (int64_t i = 0; i < c.scores.size(); ++i) {
        const double x = normal(random);
        const double score = kind == 0   ? static_cast<double>(random() % 5)
                             : kind == 1 ? std::exp(3 * x)
                                         : x * (top_k ? 1 : x);
        c.scores.set(i, random() % 20 == 0 ? (random() % 2 ? NAN : 0.0) : score);
      }
      for (int64_t b = 0; b < sizes.batch; ++b) {
        const auto there = static_cast<int64_t>(random() % (sizes.cols + 1));
        c.blocks.set(b, static_cast<double>(random() % 2 ? there : sizes.cols));
        c.first.set(b, static_cast<double>(of({0, 0, 1, sizes.cols - sizes.rows, -2})));
        for (int64_t i = 0; i < sizes.heads * sizes.rows; ++i)
          for (auto col = static_cast<int64_t>(c.blocks.get(b)); col < sizes.cols; ++col)
            c.scores.set((b * sizes.heads * sizes.rows + i) * sizes.cols + col,
                         random() % 2 ? NAN : 1e30);
      }
      const std::array thresholds = {.9, .5, 1.0, 1e-6, .25};
      const auto amount = [&] {
        return top_k ? static_cast<double>(2 + random() % 20) : thresholds[random() % 5];
      };
      if (per_head) {
        const bool means = settings["reduce"] == "mean";
        c.thresholds.emplace(top_k ? I32 : F32, Shape{means ? sizes.heads_kv : sizes.heads});
        for (int64_t h = 0; h < c.thresholds->size(); ++h) c.thresholds->set(h, amount());
      } else {
        c.amount = amount();
      }
      std::string text;
      for (const auto& [key, value] : settings) text += " " + key + " " + value;
      INFO(fmt::format("{} batch {} heads {}/{} rows {} cols {} scores {}", text, sizes.batch,
                       sizes.heads, heads_kv, sizes.rows, sizes.cols, kind));
      c.check(device(name));
    }
}

TEST_CASE("select_blocks: the k best, never a block without a score", "[select]") {
  // As many as there are in the first rows; block 5 of the last row has none.
  SelectCase c({1, 1, 1, 8, 8}, {{"by", "top_k"}});
  fill(c.scores, 1);
  c.scores.set(7 * 8 + 5, -std::numeric_limits<double>::infinity());
  c.amount = 5;
  for (const std::string& name : devices_and_emulator(true)) {
    c.check(device(name));
    CHECK(c.counts.values() == std::vector<double>{1, 2, 3, 4, 5, 5, 5, 5});
    c.amount = 100;
    c.check(device(name));
    CHECK(c.counts.get(7) == 7);
    c.amount = 5;
  }
}

TEST_CASE("select_blocks: heads that choose disjoint quarters", "[select]") {
  SelectCase c({1, 4, 1, 1, 16}, {{"reduce", "any"}});
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t i = 0; i < 4; ++i) c.scores.set(h * 16 + 4 * h + i, 1);
  c.first.set(0, 15);
  c.amount = 1;
  for (const std::string& name : devices_and_emulator(true)) {
    c.settings["reduce"] = "any";
    c.check(device(name));
    CHECK(c.counts.get(0) == 16);
    c.settings["reduce"] = "majority";
    c.check(device(name));
    CHECK(c.counts.get(0) == 2);  // the sink and the diagonal
    CHECK(c.indices.get(1) == 15);
  }
}

TEST_CASE("select_blocks: a call of the library", "[select]") {
  const SelectBlocks select = select_blocks(device("host"), {});
  Array scores(F32, {1, 1, 2, 3}, std::vector<double>{1, 0, 0, 3, 1, 0});
  Array first(I32, {1}), blocks(I32, {1}), mask(Bool, {1, 1, 2, 3});
  Array counts(I32, {1, 1, 2}), indices(I32, {1, 1, 2, 3});
  blocks.set(0, 3);
  SelectArgs args;
  args.scores = scores.view();
  args.first = first.view();
  args.blocks = blocks.view();
  args.mask = mask.view();
  args.counts = counts.view();
  args.indices = indices.view();
  select(args);
  CHECK(counts.values() == std::vector<double>{1, 2});
  CHECK(indices.values() == std::vector<double>{0, -1, -1, 0, 1, -1});

  SECTION("mistakes are sentences") {
    for (float wrong : {0.f, -1.f, 1.5f, NAN}) {
      args.threshold = wrong;
      CHECK_THROWS_WITH(select(args), Contains("threshold: expected above 0, at most 1, got"));
    }
    args.threshold.reset();
    args.thresholds = first.view();
    CHECK_THROWS_WITH(select(args), Contains("thresholds: given, but the kernel was compiled "
                                             "without per_head"));
    const SelectBlocks per_head = select_blocks(fast_device(), {.per_head = true});
    Array two(F32, {2});
    args.thresholds = two.view();
    CHECK_THROWS_WITH(per_head(args), Contains("thresholds: expected shape [1], got [2]"));
    args.thresholds.reset();
    CHECK_THROWS_WITH(per_head(args), Contains("thresholds: missing"));
    const SelectBlocks best = select_blocks(fast_device(), {.by = SelectBy::TopK});
    args.top_k = 1;
    CHECK_THROWS_WITH(best(args), Contains("top_k: expected 2 (the forced blocks) to"));
    args.mask.shape[2] = 3;
    CHECK_THROWS_WITH(select(args), Contains("mask: expected shape [1, 1, 2, 3], got"));
    CHECK_THROWS_WITH(select_blocks_kernel({.by = SelectBy::TopK, .ref_compat = true}),
                      Contains("ref_compat: expected false with by = top_k"));
    CHECK_THROWS_WITH(select_blocks_kernel({.force_sink = false, .ref_compat = true}),
                      Contains("ref_compat: expected force_sink and force_diag"));
    CHECK_THROWS_WITH(select_blocks_kernel({.ref_chunk = 4}),
                      Contains("ref_chunk: expected 0 without ref_compat"));
  }
}
