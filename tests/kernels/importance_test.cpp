// token_importance and nosa_mean_pool: against float64.
#include "kernels/infllmv2/importance.h"

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

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

struct ImportanceCase {
  ImportanceConfig config;
  Array v, weights, amplitude, bias, importance;

  ImportanceCase(const ImportanceConfig& given, int64_t tokens, double size,
                 std::mt19937_64& random)
      : config(given) {
    const int64_t heads = config.heads_kv;
    v = Array(config.dtype, {tokens, heads, config.head_dim});
    weights = Array(config.dtype, {heads, heads, config.head_dim});
    amplitude = Array(F32, {heads});
    bias = Array(F32, {heads});
    importance = Array(F32, {tokens, heads});
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < v.size(); ++i) v.set(i, normal(random));
    for (int64_t i = 0; i < weights.size(); ++i) weights.set(i, size * normal(random));
    for (int64_t h = 0; h < heads; ++h)
      amplitude.set(h, 1 + normal(random) / 4), bias.set(h, normal(random));
  }
  ImportanceArgs args() {
    ImportanceArgs all{v.view(), weights.view(), amplitude.view(), importance.view()};
    if (config.bias) all.bias = bias.view();
    return all;
  }
  void check(Device& device) {
    fill(importance, NAN);
    const Importance run = token_importance(device, config);
    kiln::testing::run_on(device, *run.executable(), run.bind(args()));
    INFO(config.heads_kv << " heads of " << config.head_dim << " on " << device.name());
    const Comparison result = compare(importance.values(), importance_reference(config, args()),
                                      config.heads_kv, {.row = 5e-5, .element = 1e-4});
    INFO(result.str());
    CHECK(result.ok());
  }
};

}  // namespace

TEST_CASE("token_importance: any heads, large and small", "[importance]") {
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 12 : 2); ++round) {
      ImportanceConfig config;
      config.dtype = draw(random, 0, 1) ? F16 : BF16;
      config.head_dim = 16 * draw(random, 1, 9);
      config.heads_kv = draw(random, 1, name == "host" ? 20 : 4);
      config.bias = draw(random, 0, 1);
      const double sizes[] = {0.01, 0.1, 1};
      ImportanceCase(config, draw(random, 0, 150), sizes[draw(random, 0, 2)], random)
          .check(device(name));
    }
}

TEST_CASE("token_importance: no overflow, nothing lost", "[importance]") {
  // Σ = x on both sides, of one head: exp(x) is beyond f32, or below its precision beside 1.
  std::mt19937_64 random(1);
  for (double x : {-80.0, -20.0, -9.0, 0.0, 9.0, 100.0, 2000.0}) {
    ImportanceCase one({.head_dim = 16, .heads_kv = 1}, 1, 1, random);
    fill(one.v, 0);
    fill(one.weights, 0);
    one.v.set(0, 1);
    one.weights.set(0, x);
    one.amplitude.set(0, 2);
    token_importance(device("host"), one.config)(one.args());
    const double expected = 2 * (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))));
    CHECK(one.importance.get(0) == Approx(expected).epsilon(1e-5));
  }
}

TEST_CASE("nosa_mean_pool: whole windows, others 0", "[importance]") {
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 10 : 2); ++round) {
      NosaMeanConfig config;
      if (draw(random, 0, 1)) {
        config.window = draw(random, 1, 40);
        config.stride = draw(random, 1, config.window);
      }
      const int64_t batch = draw(random, 1, 4), heads = draw(random, 1, 3);
      Array ends(I32, {batch + 1});
      int64_t longest = 0;
      for (int64_t b = 0; b < batch; ++b) {
        const int64_t length = draw(random, 0, 3) ? draw(random, 0, 300) : draw(random, 0, 33);
        ends.set(b + 1, ends.get(b) + static_cast<double>(length));
        longest = std::max(longest, length);
      }
      const auto tokens = static_cast<int64_t>(ends.get(batch));
      Array importance(F32, {tokens + 5, heads});
      fill(importance, NAN);  // five tokens of nobody
      for (int64_t i = 0; i < tokens * heads; ++i)
        importance.set(i, std::normal_distribution<double>()(random));
      Array means(F32, {heads, batch, longest / config.stride + 2});
      fill(means, NAN);
      const NosaMeanArgs args{importance.view(), ends.view(), means.view()};
      const NosaMeanPool pool = nosa_mean_pool(device(name), config);
      kiln::testing::run_on(device(name), *pool.executable(), pool.bind(args));
      INFO("window " << config.window << ", stride " << config.stride << " on " << name);
      const Comparison result = compare(means.values(), nosa_mean_reference(config, args),
                                        means.shape()[2], {.row = 1e-5, .element = 1e-5});
      INFO(result.str());
      CHECK(result.ok());
    }
}

TEST_CASE("nosa_mean_pool: the article's own check", "[importance]") {
  // avg_pool1d(32, 16) of each sequence by itself, 67 and 1432 tokens of 4 heads in bf16.
  std::mt19937_64 random(run_seed());
  Array ends(I32, {3}, Cells{0, 67, 1499}), importance(F32, {1499, 4});
  for (int64_t i = 0; i < importance.size(); ++i)
    importance.set(i, round_to(BF16, std::normal_distribution<double>()(random)));
  Array means(F32, {4, 2, 1432 / 16 - 1});
  nosa_mean_pool(device("host"), {})({importance.view(), ends.view(), means.view()});
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t m = 0; m < means.shape()[2]; ++m) {
        double sum = 0;
        const int64_t length = b ? 1432 : 67, begin = b ? 67 : 0;
        if (16 * m + 32 <= length)
          for (int64_t t = 0; t < 32; ++t) sum += importance.get((begin + 16 * m + t) * 4 + h);
        CHECK(means.get((h * 2 + b) * means.shape()[2] + m) == Approx(sum / 32).margin(1e-6));
      }
}

TEST_CASE("importances: mistakes are sentences", "[importance][errors]") {
  const auto config = [&](const char* sentence, const std::function<void(ImportanceConfig&)>& to) {
    ImportanceConfig given;
    to(given);
    CHECK_THROWS_WITH(token_importance(device("host"), given), Contains(sentence));
  };
  config("heads_kv: expected 1 to 64, got 65", [](auto& c) { c.heads_kv = 65; });
  config("head_dim: expected a multiple of 16, 16 to 256, got 40",
         [](auto& c) { c.head_dim = 40; });
  config("dtype: expected f16 or bf16, got f32", [](auto& c) { c.dtype = F32; });
  CHECK_THROWS_WITH(nosa_mean_pool(device("host"), {.window = 8, .stride = 9}),
                    Contains("stride: expected 1 to 8, got 9"));
  std::mt19937_64 random(1);
  const auto call = [&](const char* sentence, const std::function<void(ImportanceArgs&)>& spoil) {
    ImportanceCase one({.head_dim = 16, .bias = true}, 3, 1, random);
    ImportanceArgs args = one.args();
    spoil(args);
    CHECK_THROWS_WITH(token_importance(device("host"), one.config)(args), Contains(sentence));
  };
  call("weights: expected shape [2, 2, 16], got [2, 1, 16]",
       [](auto& a) { a.weights.shape[1] = 1; });
  call("bias: missing", [](auto& a) { a.bias.reset(); });
  call("importance: expected shape [3, 2], got [2, 2]", [](auto& a) { a.importance.shape[0] = 2; });
}
