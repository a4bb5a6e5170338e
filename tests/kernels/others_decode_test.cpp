// Faults that others' users met in sparse decode (tests/OTHERS_BUGS.md): the order of a list, its
// padding, what lies beyond a sequence's end, splits that have nothing to do.
#include <catch2/catch.hpp>
#include <chrono>
#include <cmath>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/sparse_decode.h"

using namespace kiln;
using namespace kiln::test;

namespace {

void check_rows(const DecodeCase& one, double value, double lse) {
  for (int64_t i = 0; i < one.o.size(); ++i) REQUIRE(one.o.get(i) == value);
  for (int64_t i = 0; i < one.lse.size(); ++i) {
    if (std::isinf(lse)) {
      REQUIRE(one.lse.get(i) == lse);
    } else {
      REQUIRE(one.lse.get(i) == Approx(lse).margin(1e-4));
    }
  }
}

}  // namespace

TEST_CASE("lists in any order, padded with -1 or what is too large (T4)", "[attention][others]") {
  const std::vector<std::vector<double>> lists = {
      {1, 0},       {0, 1},        {-1, 1, 0},      {1, -1, 0},          {-1, -1},
      {0, 1, 0, 1}, {1, 1, -1, 0}, {2, 1, 0, 1000}, {-7, 2, 1, 0, 0, 2}, {0},
      {1},          {2},           {1000, -1000}};
  for (auto where : devices())
    for (int64_t splits : {1, 2, 3})
      for (double beyond : {100.0, static_cast<double>(NAN), static_cast<double>(INFINITY)})
        for (const std::vector<double>& list : lists) {
          if (where == "interpreter" && splits == 2) continue;  // the slowest; 1 and 3 tell
          DecodeCase one({}, {.entries = static_cast<int64_t>(list.size()), .splits = splits});
          int64_t keys = 0;
          for (int64_t key = 0; key < 40; ++key) {
            const double block = key < 32 ? 0 : 1;
            keys += std::find(list.begin(), list.end(), block) != list.end();
          }
          for (size_t i = 0; i < list.size(); ++i) one.chosen.set(static_cast<int64_t>(i), list[i]);
          one.lengths.set(0, 40);
          for (int64_t i = 0; i < one.v.size(); ++i) one.v.set(i, i / 64 < 40 ? 1 : beyond);
          if (std::isnan(beyond)) one.poison(beyond);
          one.run(device(where));
          INFO(where << " splits " << splits << " beyond " << beyond << " list of " << list.size());
          if (keys == 0) {
            check_rows(one, 0, -INFINITY);
          } else {
            check_rows(one, 1, std::log(static_cast<double>(keys)));
          }
        }
}

TEST_CASE("splits without a selected block weigh nothing (T5)", "[attention][others]") {
  for (auto where : devices())
    for (int64_t splits : {1, 2, 5, 7})
      for (double key : {-2.5, 0.0, 2.5})
        for (const std::vector<double>& mask : std::vector<std::vector<double>>{{1, 0, 0, 0, 1},
                                                                                {0, 0, 1, 0, 0},
                                                                                {0, 0, 0, 0, 0},
                                                                                {1, 1, 1, 1, 1},
                                                                                {0, 0, 0, 0, 1}}) {
          if (where == "interpreter" && splits % 2 == 0) continue;
          DecodeConfig config;
          config.lists = false;
          DecodeCase one(config, {.room = 160, .entries = 5, .splits = splits});
          int64_t keys = 0;
          for (int64_t i = 0; i < 5; ++i) {
            one.chosen.set(i, mask[static_cast<size_t>(i)]);
            keys += mask[static_cast<size_t>(i)] != 0 ? 32 : 0;
          }
          one.lengths.set(0, 160);
          fill(one.q, 1);
          fill(one.k, key);
          fill(one.v, 1);
          one.poison(NAN);
          one.run(device(where));
          INFO(where << " splits " << splits << " key " << key << " keys " << keys);
          if (keys == 0) {
            check_rows(one, 0, -INFINITY);
          } else {
            check_rows(one, 1, 8 * key + std::log(static_cast<double>(keys)));
          }
        }
}

TEST_CASE("decode of random lists, masks, lengths and splits", "[attention][others][random]") {
  std::mt19937_64 random(run_seed());
  const auto any = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() + random() % values.size());
  };
  for (auto where : devices()) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(4);
    for (int round = 0; round < 4 || std::chrono::steady_clock::now() < end; ++round) {
      DecodeConfig config;
      config.dtype = random() % 3 == 0 ? BF16 : random() % 3 == 0 ? F32 : F16;
      config.group = any({1, 4, 7, 16});
      config.dim = any({64, 32});
      config.block = any({32, 16});
      config.lists = random() % 2 != 0;
      const int64_t room = any({1, 31, 64, 100, 160});
      DecodeCase one(config, {.batch = any({1, 3}),
                              .heads_kv = any({1, 2}),
                              .room = room,
                              .entries = any({1, 5, 11}),
                              .splits = any({1, 2, 5})});
      one.randomize(random);
      if (random() % 2 != 0) one.poison(NAN);
      INFO(where << " " << name(config.dtype) << (config.lists ? " list" : " mask") << " group "
                 << config.group << " dim " << config.dim << " block " << config.block << " room "
                 << room << " batch " << one.sizes.batch << " heads_kv " << one.sizes.heads_kv
                 << " entries " << one.sizes.entries << " splits " << one.sizes.splits);
      one.check(device(where));
    }
  }
}

// A prefill neighbour of T1 and T3: every mask of 2 × 2 blocks at lengths that end in a block.
TEST_CASE("each mask of 2 by 2 blocks, with ends inside of blocks", "[attention][others]") {
  for (auto where : devices())
    for (int64_t length : {128, 100, 65}) {
      AttentionConfig config;
      config.dim = config.dim_v = 64;
      config.lse = true;
      AttentionCase one(config, {.seq = length, .seq_kv = length});
      one.randomize(run_seed());
      fill(one.v, 1);
      fill(one.k, 0);
      for (int bits = 0; bits < 16; ++bits) {
        Array mask(Bool, {1, 1, 2, 2});
        for (int i = 0; i < 4; ++i) mask.set(i, bits >> i & 1);
        one.use(mask);
        one.run(device(where));
        INFO(where << " length " << length << " mask " << bits);
        for (int64_t i = 0; i < length; ++i) {
          const int row = bits >> (i < 64 ? 0 : 2) & 3;
          const double keys = (row & 1) * 64.0 + (row >> 1) * static_cast<double>(length - 64);
          REQUIRE(one.o.get(i * 64 + i % 64) == (keys > 0 ? 1 : 0));
          if (keys > 0) {
            REQUIRE(one.lse.get(i) == Approx(std::log(keys)).margin(1e-4));
          } else {
            REQUIRE(one.lse.get(i) == -INFINITY);
          }
        }
      }
    }
}
