// Faults that others' users met in sparse decode (tests/OTHERS_BUGS.md): the order of a list, its
// padding, what lies beyond a sequence's end, splits that have nothing to do.
#include <catch2/catch.hpp>
#include <cmath>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/sparse_decode_case.h"

using namespace kiln;
using namespace kiln::test;

namespace {

void check_rows(const SparseDecodeCase& one, double value, double lse) {
  for (int64_t i = 0; i < one.o.size(); ++i) REQUIRE(one.o.get(i) == value);
  for (int64_t i = 0; i < one.lse.size(); ++i) {
    if (std::isinf(lse)) {
      REQUIRE(one.lse.get(i) == lse);
    } else {
      REQUIRE(one.lse.get(i) == Approx(lse).margin(1e-4));
    }
  }
}

DecodeConfig small(DecodeForm form) {
  return {.head_dim = 64, .block = 32, .form = form, .lse = true};
}

// Keys and values that are seen, and what all others are.
void fill_seen(SparseDecodeCase& one, double key, double value, double other) {
  fill(one.k_store, other);
  fill(one.v_store, other);
  for (int64_t i = 0; i < one.sizes.room; ++i)
    for (int64_t d = 0; d < one.config.head_dim && one.sees(0, 0, 0, i); ++d) {
      one.set(one.args.k, 0, i, 0, d, key);
      one.set(one.args.v, 0, i, 0, d, value);
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
          SparseDecodeCase one(small(DecodeForm::Indices),
                               {.entries = static_cast<int64_t>(list.size())});
          one.args.splits = splits;
          int64_t keys = 0;
          for (int64_t key = 0; key < 40; ++key) {
            const double block = key < 32 ? 0 : 1;
            keys += std::find(list.begin(), list.end(), block) != list.end();
          }
          for (size_t i = 0; i < list.size(); ++i) one.chosen.set(static_cast<int64_t>(i), list[i]);
          one.lengths.set(0, 40);
          fill_seen(one, 0, 1, beyond);
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
          SparseDecodeCase one(small(DecodeForm::MaskBool), {.room = 160, .entries = 0});
          one.args.splits = splits;
          int64_t keys = 0;
          for (int64_t i = 0; i < 5; ++i) {
            one.chosen.set(i, mask[static_cast<size_t>(i)]);
            keys += mask[static_cast<size_t>(i)] != 0 ? 32 : 0;
          }
          one.lengths.set(0, 160);
          fill(one.q, 1);
          fill_seen(one, key, 1, NAN);
          one.run(device(where));
          INFO(where << " splits " << splits << " key " << key << " keys " << keys);
          if (keys == 0) {
            check_rows(one, 0, -INFINITY);
          } else {
            check_rows(one, 1, 8 * key + std::log(static_cast<double>(keys)));
          }
        }
}

// A prefill neighbour of T1 and T3: every mask of 2 × 2 blocks at lengths that end in a block.
TEST_CASE("each mask of 2 by 2 blocks, with ends inside of blocks", "[attention][others]") {
  for (auto where : devices())
    for (int64_t length : {128, 100, 65}) {
      AttentionConfig config;
      config.head_dim = config.head_dim_v = 64;
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
