// Anti-diagonal scores of cells.
#include "kernels/antidiag_scores/antidiag_scores.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/cell_case.h"
#include "tests/kernels/entry_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

// Runs it; the scores.
std::vector<double> scores_of(Device& device, CellCase& c) {
  Array scores(c.config.out, {c.batch(), c.heads, c.cells(c.seq()), c.cells(c.seq_kv())});
  EntryRun run{"antidiag_scores", c.settings(), c.arguments(), {{"scores", &scores}}};
  run.settings["out"] = std::string(name(c.config.out));
  INFO(c.describe());
  // Up to thousands of products of normal numbers are added in f32: a score is as large as the root
  // of how many, and so are errors; it may be near 0 all the same, so rows say nothing.
  const double products = static_cast<double>(c.config.stride * c.config.head_dim);
  AccuracyRule rule = c.config.out == F32 ? AccuracyRule{} : accuracy_rule(c.config.out);
  rule.row = INFINITY;
  rule.element += 2e-5 * std::sqrt(products);
  check_entry(device, run, {{"scores", rule}});
  return scores.values();
}

}  // namespace

TEST_CASE("antidiag_scores: any batch, packed or not, with history", "[antidiag]") {
  std::mt19937_64 random(run_seed());
  const auto of = [&](std::initializer_list<int64_t> list) {
    return *(list.begin() + random() % list.size());
  };
  for (const std::string& name : devices_and_emulator(true))
    for (int round = 0; round < (name == "host" ? 20 : 2); ++round) {
      AntidiagConfig config;
      config.dtype = random() % 2 ? F16 : BF16;
      config.out = random() % 2 ? F32 : config.dtype;
      config.head_dim = of({16, 32, 64, 80, name == "host" ? 256 : 48});
      config.stride = of({4, 8, 16});
      config.causal = random() % 3 != 0;
      config.varlen = random() % 2;
      config.lengths = random() % 3 == 0;
      if (random() % 3 == 0) config.page = of({16, 64, 256});
      config.lengths = config.lengths || config.page > 0;
      config.q_start = random() % 2;
      const int64_t heads_kv = of({1, 2}), batch = of({1, 2, 3});
      const int64_t longest = name == "host" ? 40 * config.stride : 10 * config.stride;
      CellCase c(config, random_sequences(config, batch, longest, random), heads_kv * of({1, 3}),
                 heads_kv, random);
      scores_of(device(name), c);
    }
}

TEST_CASE("antidiag_scores: the worked example", "[antidiag]") {
  // It has a stride of 2: here the other two of each four tokens are 0.
  std::mt19937_64 random(1);
  CellCase c({.out = F32, .head_dim = 16, .stride = 4, .causal = false}, {{16, 16}}, 1, 1, random);
  const std::vector<double> q = {1, 0, 2, -1, 0, 1, 3, 1}, k = {1, 2, -1, 0, 1, 1, 0, 2};
  fill(c.q, 0);
  fill(c.k, 0);
  for (int64_t i = 0; i < 8; ++i) {
    // Of queries the later two, of keys the earlier: these meet on the anti-diagonal.
    c.q.set(c.at_q(0, 0, i / 2 * 4 + 2 + i % 2, 5), q[i]);
    c.k.set(c.at_k(0, 0, i / 2 * 4 + i % 2, 5), k[i]);
  }
  const std::vector<double> all = {2, 0, 1, 2, 3, 1, 1, 4, 1, -1, 1, 0, 7, -1, 4, 6};
  std::vector<double> causal = all;
  for (int64_t i = 0; i < 16; ++i)
    if (i % 4 > i / 4) causal[i] = 0;
  for (const std::string& name : devices_and_emulator(true)) {
    c.config.causal = false;
    CHECK(scores_of(device(name), c) == all);
    c.config.causal = true;
    CHECK(scores_of(device(name), c) == causal);
  }
}

TEST_CASE("antidiag_scores: keys behind a causal batch's last query do not matter", "[antidiag]") {
  std::mt19937_64 random(run_seed());
  CellCase c({.head_dim = 32, .varlen = true, .q_start = true},
             {{5, 40, 17}, {30, 100, 3}, {8, 64, 8}}, 2, 1, random);
  for (int64_t b = 0; b < 3; ++b)
    for (int64_t key = c.sequences[b].start + c.sequences[b].queries; key < c.sequences[b].keys;
         ++key)
      for (int64_t d = 0; d < 32; ++d) c.k.set(c.at_k(b, 0, key, d), NAN);
  for (const std::string& name : devices_and_emulator(true))
    for (double score : scores_of(device(name), c)) REQUIRE(std::isfinite(score));
}

TEST_CASE("antidiag_scores: mistakes are sentences", "[antidiag]") {
  CHECK_THROWS_WITH(antidiag_scores_kernel({.dtype = F32}),
                    Contains("dtype: expected f16 or bf16, got f32"));
  CHECK_THROWS_WITH(antidiag_scores_kernel({.out = F64}),
                    Contains("out: expected f16, bf16 or f32, got f64"));
  CHECK_THROWS_WITH(antidiag_scores_kernel({.head_dim = 24}),
                    Contains("head_dim: expected 16 to 256, a multiple of 16, got 24"));
  CHECK_THROWS_WITH(antidiag_scores_kernel({.stride = 5}),
                    Contains("stride: expected 4, 8 or 16, got 5"));

  std::mt19937_64 random(1);
  CellCase c({.head_dim = 16, .varlen = true, .q_start = true, .checked = true},
             {{20, 30, 10}, {4, 9, 5}}, 2, 1, random);
  Array scores(F16, {2, 2, 3, 4});
  AntidiagArgs args{c.args(), scores.view()};
  const AntidiagScores call = antidiag_scores(device("host"), c.config);
  call(args);
  SECTION("of arguments") {
    const AntidiagArgs good = args;
    args.cu_seqlens_k.reset();
    CHECK_THROWS_WITH(call(args), Contains("cu_seqlens_k: missing"));
    args = good;
    args.max_seqlen_q.reset();
    CHECK_THROWS_WITH(call(args), Contains("max_seqlen_q: expected the longest sequence's tokens"));
    args = good;
    args.cu_seqlens_k = c.starts.view();
    CHECK_THROWS_WITH(call(args), Contains("cu_seqlens_k: expected shape [3], got [2]"));
    args = good;
    args.q_start = c.cu_q.view();
    CHECK_THROWS_WITH(call(args), Contains("q_start: expected shape [2], got [3]"));
    args = good;
    args.q.shape[1] = 0;
    CHECK_THROWS_WITH(call(args), Contains("scores: expected shape [2, 0, 3, 4]"));
    args = good;
    args.scores.shape[2] = 2;
    CHECK_THROWS_WITH(call(args), Contains("scores: expected shape [2, 2, 3, 4], got"));
  }
  SECTION("of what the device reads, if checked") {
    c.starts.set(1, 6);
    CHECK_THROWS_WITH(call(args), Contains("q_start: expected 0 or more, with keys for all"));
    c.starts.set(1, 5);
    c.cu_q.set(2, 19);
    CHECK_THROWS_WITH(call(args), Contains("cu_seqlens_q: expected numbers that do not become"));
    c.cu_q.set(2, 28);
    CHECK_THROWS_WITH(call(args), Contains("cu_seqlens_q: expected no more tokens than q has"));
    c.cu_q.set(1, 22);
    c.cu_q.set(2, 24);
    args.max_seqlen_q = 21;
    CHECK_THROWS_WITH(call(args), Contains("cu_seqlens_q: expected no sequence longer than"));
  }
}
