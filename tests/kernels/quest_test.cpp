// Choosing blocks of a cache: extremes of each, scores by them, the choice.
#include "kernels/quest/quest.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/compare.h"
#include "runtime/compile.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct QuestSizes {
  int64_t batch, room, heads_kv, group;
};

// A cache with poison wherever no key is, its pooled extremes and scores.
struct QuestCase {
  QuestConfig config;
  QuestSizes sizes;
  int64_t blocks;
  bool heads_first;  // in memory: [batch, heads_kv, room, dim]
  Array cache, q, lengths, kmin, kmax, scores;
  std::map<std::string, std::string> settings;

  QuestCase(const QuestConfig& c, const QuestSizes& s, bool heads_first, std::mt19937_64& random)
      : config(c),
        sizes(s),
        blocks((s.room + c.block - 1) / c.block),
        heads_first(heads_first),
        cache(c.dtype, heads_first ? Shape{s.batch, s.heads_kv, s.room, c.head_dim}
                                   : Shape{s.batch, s.room, s.heads_kv, c.head_dim}),
        q(c.dtype, {s.batch, s.heads_kv * s.group, c.head_dim}),
        lengths(I32, {s.batch}),
        kmin(c.dtype, {s.batch, blocks, s.heads_kv, c.head_dim}),
        kmax(c.dtype, {s.batch, blocks, s.heads_kv, c.head_dim}),
        scores(F32, {s.batch, s.heads_kv, blocks}),
        settings{{"dtype", std::string(name(c.dtype))},
                 {"head_dim", std::to_string(c.head_dim)},
                 {"block", std::to_string(c.block)}} {
    fill_normal(cache, random);
    fill_normal(q, random);
    for (int64_t b = 0; b < s.batch; ++b)
      lengths.set(b, static_cast<double>(random() % static_cast<uint64_t>(s.room + 1)));
  }

  Memory keys() {
    Memory memory = cache.view();
    if (heads_first) {
      std::swap(memory.shape[1], memory.shape[2]);
      std::swap(memory.strides[1], memory.strides[2]);
    }
    return memory;
  }
  int64_t length(int64_t b) const { return static_cast<int64_t>(lengths.get(b)); }
  void poison() {
    const Memory memory = keys();
    for (int64_t b = 0; b < sizes.batch; ++b)
      for (int64_t key = length(b); key < sizes.room; ++key)
        for (int64_t h = 0; h < sizes.heads_kv; ++h)
          for (int64_t d = 0; d < config.head_dim; ++d)
            store_element(Scalar::of_float(config.dtype, d % 3 ? NAN : INFINITY),
                          const_cast<std::byte*>(element_address(memory, {b, key, h, d})));
  }
  void poison_empty_blocks() {
    for (int64_t b = 0; b < sizes.batch; ++b)
      for (int64_t i = (length(b) + config.block - 1) / config.block; i < blocks; ++i)
        for (int64_t at = 0; at < sizes.heads_kv * config.head_dim; ++at)
          for (Array* array : {&kmin, &kmax})
            array->set((b * blocks + i) * sizes.heads_kv * config.head_dim + at, NAN);
  }

  // Runs and compares every output with the entry's reference.
  void check(Device& device, const char* kernel, std::map<std::string, std::string> given,
             Arguments arguments, const std::map<std::string, Array*>& outputs) {
    const KernelEntry& entry = kernel_named(kernel);
    for (const auto& [name, value] : settings) given.emplace(name, value);
    const Options options = entry.with_defaults(given);
    const Function compiled = compile(device, entry.build(options, device.target()));
    for (const auto& [param, value] : entry.default_params(options)) arguments.param(param, value);
    for (const auto& [name, array] : outputs) {
      fill(*array, 77);
      arguments.tensor(name, *array);
    }
    const Bindings bindings = bind(compiled.signature(), arguments);
    entry.check(options, bindings);
    kiln::testing::run_on(device, *compiled.executable(), bindings);
    for (const auto& [name, expected] : entry.reference(options, bindings)) {
      const Array& got = *outputs.at(name);
      const Comparison result =
          compare(got.values(), expected, std::max<int64_t>(got.shape().back(), 1),
                  name == "scores" ? accuracy_rule(F32) : AccuracyRule{});
      INFO(kernel << " on " << device.name() << ": " << name << ": " << result.str());
      CHECK(result.ok());
    }
  }
  void pool(Device& device) {
    check(device, "minmax_pool", {}, Arguments().tensor("k", keys()).tensor("lengths", lengths),
          {{"kmin", &kmin}, {"kmax", &kmax}});
  }
  void score(Device& device) {
    check(device, "quest_score", {{"local", std::to_string(config.local)}},
          Arguments()
              .tensor("q", q)
              .tensor("kmin", kmin)
              .tensor("kmax", kmax)
              .tensor("lengths", lengths),
          {{"scores", &scores}});
  }
};

std::vector<std::string> quest_devices() {
  std::vector<std::string> names;
  for (std::string_view name : devices()) names.emplace_back(name);
  if (names.front() == "host") names.emplace_back("emulator");
  return names;
}

Array numbers(DType dtype, Shape shape, const std::vector<double>& values) {
  return Array(dtype, std::move(shape), values);
}

}  // namespace

TEST_CASE("quest: pools and scores, any shape; what no key holds does not matter", "[quest]") {
  std::mt19937_64 random(run_seed());
  const auto of = [&](std::initializer_list<int64_t> list) {
    return *(list.begin() + random() % list.size());
  };
  for (const std::string& name : quest_devices())
    for (int round = 0; round < (name == "host" ? 24 : 5); ++round) {
      QuestConfig config;
      config.dtype = std::array{F16, BF16, F32}[random() % 3];
      config.head_dim = of({1, 16, 64, 80, 96, 128, 256});
      config.block = of({1, 5, 16, 17, 32, 64});
      config.local = of({0, 1, 2});
      const QuestSizes sizes{of({1, 2, 3}), static_cast<int64_t>(random() % 150), of({1, 2, 3}),
                             of({1, 2, 7})};
      INFO(fmt::format("{} {} dim {} block {} local {}: batch {} room {} heads {}x{}", name,
                       kiln::name(config.dtype), config.head_dim, config.block, config.local,
                       sizes.batch, sizes.room, sizes.heads_kv, sizes.group));
      QuestCase c(config, sizes, random() % 2 == 0, random);
      c.poison();
      c.pool(device(name));
      c.poison_empty_blocks();
      c.score(device(name));
    }
}

TEST_CASE("quest: lengths at every edge of a block", "[quest]") {
  std::mt19937_64 random(run_seed());
  const std::vector<int64_t> edges = {0, 1, 15, 16, 17, 31, 32, 33, 64};
  QuestCase c({.dtype = F32, .head_dim = 16, .block = 16},
              {static_cast<int64_t>(edges.size()), 64, 2, 2}, false, random);
  for (size_t i = 0; i < edges.size(); ++i)
    c.lengths.set(static_cast<int64_t>(i), static_cast<double>(edges[i]));
  c.poison();
  for (const std::string& name : quest_devices()) {
    c.pool(device(name));
    c.score(device(name));
  }
  CHECK(c.kmin.get(0) == 0);                            // a sequence without keys
  for (double length : {-5.0, 1000.0, 2147483647.0}) {  // wrong ones are as none, or as all
    for (size_t i = 0; i < edges.size(); ++i) c.lengths.set(static_cast<int64_t>(i), length);
    if (length > 0) fill_normal(c.cache, random);
    for (const std::string& name : quest_devices()) {
      c.pool(device(name));
      c.score(device(name));
    }
  }
}

TEST_CASE("quest: no key of a block scores more than the block", "[quest]") {
  std::mt19937_64 random(run_seed());
  QuestCase c({.dtype = F32, .head_dim = 32, .block = 8, .local = 0}, {2, 61, 3, 1}, false, random);
  c.pool(fast_device());
  c.score(fast_device());
  const double scale = 1 / std::sqrt(32.0);
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 3; ++h)
      for (int64_t key = 0; key < c.length(b); ++key) {
        double product = 0;
        for (int64_t d = 0; d < 32; ++d)
          product += scale * c.q.get((b * 3 + h) * 32 + d) *
                     c.cache.get(((b * 61 + key) * 3 + h) * 32 + d);
        CHECK(product <= c.scores.get((b * 3 + h) * c.blocks + key / 8) + 1e-5);
      }
}

TEST_CASE("quest: how many blocks are kept", "[quest]") {
  // ReSA's numbers: of 100 blocks 16, of 1000 100, of 10 all, at a tenth and at least 16.
  CHECK(kept_blocks(1600, 16, 0.9, 16) == 16);
  CHECK(kept_blocks(16000, 16, 0.9, 16) == 100);
  CHECK(kept_blocks(160, 16, 0.9, 16) == 10);
  CHECK(kept_blocks(8192, 32, 0.8) == 52);
  CHECK(kept_blocks(2048, 32, 0.8) == 13);
  CHECK(kept_blocks(1000, 10, 0.9) == 10);  // though 1000 · (1 − 0.9) is more than 100
  CHECK(kept_blocks(0, 16, 0) == 0);
  CHECK(kept_blocks(1, 16, 1) == 1);
  CHECK(kept_blocks(33, 16, 0) == 3);
  for (int64_t length = 0; length < 400; ++length)
    for (int percent = 0; percent <= 100; percent += 5) {
      // The same in whole numbers.
      const int64_t all = (length + 15) / 16;
      const int64_t wanted = (length * (100 - percent) + 1599) / 1600;
      CHECK(kept_blocks(length, 16, percent / 100.0) ==
            std::min(std::max<int64_t>(wanted, 1), all));
    }
  for (double ratio : {-0.1, 1.1, static_cast<double>(NAN)})
    CHECK_THROWS_WITH(kept_blocks(10, 16, ratio), Contains("sparse_ratio: expected 0 to 1, got"));
}

TEST_CASE("quest: the best blocks of each head, the last one always", "[quest]") {
  const Array scores = numbers(F32, {2, 2, 4},
                               {1, 9, 3, 0, 5, 5, NAN, -kInfinity,  //
                                7, 8, kInfinity, 9, -kInfinity, NAN, 0, 99});
  const Array lengths = numbers(I32, {2}, {40, 12});  // 4 blocks of 10, and 2
  const auto chosen = [&](double ratio, int64_t least = 1) {
    const Array array = select_blocks(scores.view(), lengths.view(), 10, ratio, least);
    CHECK(array.dtype() == I32);
    return array.values();
  };
  CHECK(chosen(0.5) == std::vector<double>{1, 3, 0, 3, 1, -1, 1, -1});
  CHECK(chosen(0.25) == std::vector<double>{1, 2, 3, 0, 1, 3, 1, -1, -1, 1, -1, -1});
  CHECK(chosen(1) == std::vector<double>{3, 3, 1, 1});
  CHECK(chosen(0) == std::vector<double>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, -1, -1, 0, 1, -1, -1});
  CHECK(chosen(1, 2) == std::vector<double>{1, 3, 0, 3, 0, 1, 0, 1});
  CHECK(select_blocks(scores.view(), numbers(I32, {2}, {0, 0}).view(), 10, 0).shape() ==
        Shape{2, 2, 0});
}

TEST_CASE("quest: a choice from random scores, against counting", "[quest]") {
  std::mt19937_64 random(run_seed());
  for (int round = 0; round < 30; ++round) {
    const int64_t batch = 1 + static_cast<int64_t>(random() % 3), heads = 2, blocks = 12, block = 7;
    Array scores(F32, {batch, heads, blocks}), lengths(I32, {batch});
    for (int64_t i = 0; i < scores.size(); ++i)
      scores.set(i, static_cast<double>(random() % 6));  // with ties
    for (int64_t b = 0; b < batch; ++b)
      lengths.set(b, static_cast<double>(random() % (blocks * block + 1)));
    const double ratio = static_cast<double>(random() % 101) / 100;
    const Array chosen = select_blocks(scores.view(), lengths.view(), block, ratio);
    const int64_t most = chosen.shape()[2];
    for (int64_t row = 0; row < batch * heads; ++row) {
      const auto length = static_cast<int64_t>(lengths.get(row / heads));
      const int64_t count = (length + block - 1) / block;
      const int64_t kept = kept_blocks(length, block, ratio);
      std::vector<bool> in(static_cast<size_t>(blocks), false);
      for (int64_t i = 0; i < most; ++i) {
        const auto number = static_cast<int64_t>(chosen.get(row * most + i));
        CHECK((number >= 0) == (i < kept));
        if (i > 0 && number >= 0) CHECK(number > chosen.get(row * most + i - 1));
        if (number >= 0) in.at(static_cast<size_t>(number)) = true;
      }
      if (count > 0) CHECK(in[static_cast<size_t>(count - 1)]);
      for (int64_t i = 0; i < count; ++i) {
        int64_t better = 1;  // the last one is before all
        for (int64_t j = 0; j + 1 < count; ++j) {
          const double a = scores.get(row * blocks + j), c = scores.get(row * blocks + i);
          better += a > c || (a == c && j < i);
        }
        if (i + 1 < count) CHECK(in[static_cast<size_t>(i)] == (better < kept));
      }
    }
  }
}

TEST_CASE("quest: mistakes are sentences", "[quest]") {
  CHECK_THROWS_WITH(minmax_pool_kernel({.dtype = F64}),
                    Contains("dtype: expected f16, bf16 or f32, got f64"));
  CHECK_THROWS_WITH(minmax_pool_kernel({.head_dim = 0}),
                    Contains("head_dim: expected 1 to 512, got 0"));
  CHECK_THROWS_WITH(quest_score_kernel({.block = 257}),
                    Contains("block: expected 1 to 256, got 257"));
  CHECK_THROWS_WITH(quest_score_kernel({.local = -1}), Contains("local: expected 0 to"));
  const Array scores(F32, {2, 3, 4}), lengths(I32, {2});
  CHECK_THROWS_WITH(select_blocks(scores.view(), scores.view(), 8, 0.5),
                    Contains("lengths: expected i32 [2], got f32 [2, 3, 4]"));
  CHECK_THROWS_WITH(select_blocks(lengths.view(), lengths.view(), 8, 0.5),
                    Contains("scores: expected floats [batch, heads_kv, blocks], got i32 [2]"));
  CHECK_THROWS_WITH(select_blocks(scores.view(), numbers(I32, {2}, {5, 33}).view(), 8, 0.5),
                    Contains("lengths: sequence 1: expected 0 to 32, 4 blocks of 8, got 33"));
  CHECK_THROWS_WITH(select_blocks(scores.view(), lengths.view(), 0, 0.5),
                    Contains("block: expected 1 or more, got 0"));
  std::mt19937_64 random(1);
  QuestCase c({.dtype = F32, .head_dim = 16}, {1, 32, 3, 2}, false, random);
  c.q = Array(F32, {1, 7, 16});
  CHECK_THROWS_WITH(c.score(device("host")),
                    Contains("q: expected heads that are a multiple of heads_kv 3, got 7"));
}
