// Random problems against float64, on every device.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/attention_case.h"
#include "tests/kernels/batch_case.h"

using namespace kiln;
using namespace kiln::test;

namespace {

template <class T>
T pick(std::mt19937_64& random, std::initializer_list<T> from) {
  return from.begin()[random() % from.size()];
}

AttentionConfig random_config(std::mt19937_64& random) {
  AttentionConfig config;
  config.dtype = pick(random, {F16, BF16, F32});
  config.head_dim = pick<int64_t>(random, {32, 64, 80, 96, 128, 256});
  config.head_dim_v = pick<int64_t>(random, {config.head_dim, config.head_dim, 32, 48, 96});
  config.block.q = pick<int64_t>(random, {16, 32, 64, 128, 48});
  config.block.k = pick<int64_t>(random, {16, 32, 64, 128, 96});
  config.form =
      pick(random, {BlockForm::MaskBool, BlockForm::MaskI8, BlockForm::Lists, BlockForm::Dense});
  config.causal = random() % 2;
  config.lse = random() % 2;
  config.written_out = random() % 4 == 0;
  if (random() % 2) config.block_m = config.block.q % 32 ? 16 : 32, config.block_n = 16;
  return config;
}

int64_t random_length(std::mt19937_64& random, int64_t limit) {
  auto length = pick<int64_t>(
      random, {0, 1, 15, 16, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129, 130, 200, 1000});
  return std::min(length, limit);
}

void run_random(std::string_view where, int cases, int64_t limit) {
  std::mt19937_64 random(run_seed());
  for (int n = 0; n < cases; ++n) {
    AttentionConfig config = random_config(random);
    int64_t group = pick<int64_t>(random, {1, 1, 2, 7, 8});
    Sizes sizes;
    sizes.batch = pick<int64_t>(random, {1, 1, 2, 0});
    sizes.heads_kv = limit < 200 && group > 2 ? 1 : pick<int64_t>(random, {1, 2});
    sizes.heads = sizes.heads_kv * group;
    sizes.seq = random_length(random, limit);
    sizes.seq_kv = random_length(random, limit);
    AttentionCase one(config, sizes);
    one.randomize(random(), pick(random, {0.0, 0.2, 0.5, 1.0}));
    // Larger scales lose what the accuracy rule asks of f32 already in the scores.
    if (random() % 4 == 0) one.args.scale = static_cast<float>(1.3 / std::sqrt(config.head_dim));
    one.check(device(where));
  }
}

}  // namespace

TEST_CASE("random problems on the host", "[attention][random]") {
  run_random("host", 40, 1000);
}

TEST_CASE("random problems on the interpreter", "[attention][random]") {
  run_random("interpreter", 4, 33);
}

TEST_CASE("every edge length, as queries and as keys", "[attention]") {
  AttentionConfig config;
  config.head_dim = config.head_dim_v = 32;
  config.block = 32;
  config.lse = true;
  std::mt19937_64 random(run_seed());
  for (bool causal : {false, true}) {
    config.causal = causal;
    for (int64_t seq : {0, 1, 15, 16, 31, 32, 33, 47, 63, 64, 65, 127, 128, 129, 130, 200, 1000})
      for (int64_t seq_kv : {seq, random_length(random, 1000), random_length(random, 200)}) {
        AttentionCase one(config, {.heads = 2, .seq = seq, .seq_kv = seq_kv});
        one.randomize(random());
        one.check(fast_device());
      }
  }
}

TEST_CASE("every head dimension and dtype", "[attention]") {
  std::mt19937_64 random(run_seed());
  for (DType dtype : {F16, BF16, F32})
    for (int64_t dim : {32, 64, 80, 96, 128, 256}) {
      AttentionConfig config;
      config.dtype = dtype;
      config.head_dim = dim;
      config.head_dim_v = random() % 2 ? dim : 16 * static_cast<int64_t>(1 + random() % 16);
      config.causal = random() % 2;
      config.lse = true;
      AttentionCase one(config, {.heads = 2, .heads_kv = 1, .seq = 150, .seq_kv = 201});
      one.randomize(random());
      one.check(fast_device());
    }
}

TEST_CASE("every block edge, with tiles that divide it", "[attention]") {
  std::mt19937_64 random(run_seed());
  for (int64_t block = 16; block <= 128; block += 16)
    for (int64_t tile : {block, int64_t{16}}) {
      AttentionConfig config;
      config.head_dim = config.head_dim_v = 32;
      config.block = block;
      config.block_m = config.block_n = tile;
      config.causal = random() % 2;
      AttentionCase one(config, {.heads = 2, .seq = 300, .seq_kv = 277});
      one.randomize(random());
      one.check(fast_device());
    }
}

TEST_CASE("the shipped configurations", "[attention]") {
  std::mt19937_64 random(run_seed());
  CHECK(shipped_attention_configs().size() <= 24);
  for (const AttentionConfig& config : shipped_attention_configs()) {
    if (config.varlen) {
      BatchCase(config, {{300, 300}, {33, 200}}, 2, 1, random()).check(fast_device());
      continue;
    }
    AttentionCase one(config, {.heads = 2, .heads_kv = 1, .seq = 300, .seq_kv = 300});
    one.randomize(random());
    one.check(fast_device());
  }
}

TEST_CASE("groups of query heads share their key head", "[attention]") {
  std::mt19937_64 random(run_seed());
  for (int64_t group : {1, 2, 7, 8, 16, 32}) {
    AttentionConfig config;
    config.head_dim = config.head_dim_v = 64;
    config.causal = true;
    AttentionCase one(config,
                      {.batch = 2, .heads = 2 * group, .heads_kv = 2, .seq = 65, .seq_kv = 90});
    one.randomize(random());
    one.check(fast_device());
  }
}
