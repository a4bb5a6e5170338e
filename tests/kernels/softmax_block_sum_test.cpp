// Block sums of softmaxed scores.
#include "kernels/softmax_block_sum/softmax_block_sum.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/entry_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

struct BlockSumCase {
  BlockSumConfig config;
  Array scores, first, real_q, real_k;
  float scale = 1;

  BlockSumCase(const BlockSumConfig& config, const Shape& shape)
      : config(config),
        scores(config.dtype, shape),
        first(I32, {shape[0]}),
        real_q(I32, {shape[0]}),
        real_k(I32, {shape[0]}) {
    fill(real_q, 1e6);
    fill(real_k, static_cast<double>(shape[3]));
  }
  std::vector<double> sums(Device& device) {
    const Shape shape = scores.shape();
    const auto blocks = [&](int64_t cells) { return (cells + config.block - 1) / config.block; };
    Array out(F32, {shape[0], shape[1], blocks(shape[2]), blocks(shape[3])});
    EntryRun run{"softmax_block_sum",
                 {{"dtype", std::string(name(config.dtype))},
                  {"block", std::to_string(config.block)},
                  {"causal", config.causal ? "true" : "false"}},
                 Arguments()
                     .tensor("scores", scores)
                     .tensor("first", first)
                     .tensor("real_q", real_q)
                     .tensor("real_k", real_k)
                     .param("scale", scale),
                 {{"sums", &out}}};
    check_entry(device, run, {{"sums", accuracy_rule(F32)}});
    return out.values();
  }
};

void check_near(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-6));
}

}  // namespace

TEST_CASE("softmax_block_sum: the worked example", "[block_sum]") {
  const float scale = 1.0f / 2;  // head_dim 1, stride 2
  BlockSumCase c({.dtype = F32, .block = 2}, {1, 1, 4, 4});
  const std::vector<double> scores = {2, 0, 1, 2, 3, 1, 1, 4, 1, -1, 1, 0, 7, -1, 4, 6};
  c.scores = Array(F32, {1, 1, 4, 4}, scores);
  c.scale = scale;
  BlockSumCase later({.dtype = F32, .block = 2}, {1, 1, 2, 4});
  later.scores = Array(F32, {1, 1, 2, 4}, {scores.begin() + 8, scores.end()});
  later.scale = scale;
  later.first.set(0, 2);
  for (const std::string& name : devices_and_emulator(true)) {
    c.config.causal = true;
    c.real_q.set(0, 4);
    check_near(c.sums(device(name)), {2, 0, 1.128725, 0.871275});
    c.real_q.set(0, 3);
    check_near(c.sums(device(name)), {2, 0, 0.577681, 0.422319});
    c.real_q.set(0, 4);
    c.config.causal = false;
    check_near(c.sums(device(name)), {0.864045, 1.135955, 1.010926, 0.989074});
    check_near(later.sums(device(name)), {1.128725, 0.871275});
  }
}

TEST_CASE("softmax_block_sum: any scores, what is not there is not looked at", "[block_sum]") {
  std::mt19937_64 random(run_seed());
  const auto of = [&](std::initializer_list<int64_t> list) {
    return *(list.begin() + random() % list.size());
  };
  for (const std::string& name : devices_and_emulator(true))
    for (int round = 0; round < (name == "host" ? 30 : 4); ++round) {
      const BlockSumConfig config{std::array{F16, BF16, F32}[random() % 3],
                                  of({1, 2, 4, 8, 16, 32, 64}), random() % 3 != 0};
      const int64_t longest = name == "host" ? 300 : 90;
      const int64_t rows = static_cast<int64_t>(random() % longest),
                    cols = static_cast<int64_t>(random() % longest);
      BlockSumCase c(config, {of({1, 2}), of({1, 3}), rows, cols});
      fill_normal(c.scores, random);
      const double spread = std::array{1.0, 30.0, 1e4}[random() % 3];
      for (int64_t i = 0; i < c.scores.size(); ++i) c.scores.set(i, spread * c.scores.get(i));
      c.scale = random() % 2 ? 1.f : 0.1f;
      for (int64_t b = 0; b < c.scores.shape()[0]; ++b) {
        const auto start = of({0, 0, 1, 7, 64, -5});
        c.first.set(b, static_cast<double>(start));
        if (random() % 2)
          c.real_q.set(b, static_cast<double>(start + static_cast<int64_t>(random() % longest)));
        if (random() % 2) c.real_k.set(b, static_cast<double>(random() % (cols + 1)));
        for (int64_t i = 0; cols && i < c.scores.size() / c.scores.shape()[0]; ++i)
          if (i % cols >= static_cast<int64_t>(c.real_k.get(b)))
            c.scores.set(b * c.scores.size() / c.scores.shape()[0] + i, i % 2 ? NAN : INFINITY);
      }
      INFO(fmt::format("{} block {} causal {} {} scale {}", kiln::name(config.dtype), config.block,
                       config.causal, str(c.scores.shape()), c.scale));
      c.sums(device(name));
    }
}

TEST_CASE("softmax_block_sum: a row of blocks adds up to its rows", "[block_sum]") {
  std::mt19937_64 random(run_seed());
  BlockSumCase c({.dtype = F16, .block = 16}, {1, 2, 100, 333});
  fill_normal(c.scores, random);
  c.first.set(0, 233);
  const std::vector<double> sums = c.sums(fast_device());
  for (int64_t row = 0; row < 2 * 7; ++row) {
    double total = 0;
    for (int64_t col = 0; col < 21; ++col) total += sums[row * 21 + col];
    CHECK(total == Approx(row % 7 == 6 ? 4 : 16).epsilon(1e-5));
  }
}

TEST_CASE("softmax_block_sum: mistakes are sentences", "[block_sum]") {
  CHECK_THROWS_WITH(softmax_block_sum_kernel({.dtype = F64}),
                    Contains("dtype: expected f16, bf16 or f32, got f64"));
  for (int64_t block : {0, 3, 128})
    CHECK_THROWS_WITH(
        softmax_block_sum_kernel({.block = block}),
        Contains(fmt::format("block: expected 1 to 64, a power of two, got {}", block)));
  BlockSumCase c({.dtype = F32}, {2, 1, 20, 40});
  Array sums(F32, {2, 1, 2, 3});
  BlockSumArgs args{c.scores.view(), c.first.view(), c.real_q.view(), c.real_k.view(), sums.view()};
  const SoftmaxBlockSum call = softmax_block_sum(device("host"), c.config);
  call(args);
  args.scale = 0;
  CHECK_THROWS_WITH(call(args), Contains("scale: expected a finite number above 0, got 0"));
  args.scale = 1;
  args.sums.shape[3] = 2;
  CHECK_THROWS_WITH(call(args), Contains("sums: expected shape [2, 1, 2, 3], got [2, 1, 2, 2]"));
  args.real_k.shape[0] = 1;
  CHECK_THROWS_WITH(call(args), Contains("real_k: expected shape [2], got [1]"));
}
