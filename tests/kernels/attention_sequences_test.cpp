// Attention over sequences of different lengths: packed, in a cache, in pages.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "ir/error.h"
#include "kernels/compare.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/batch_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

AttentionConfig small_config() {
  return {.head_dim = 32, .head_dim_v = 16, .block = 32, .causal = true, .lse = true};
}

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

// Lengths around the ends of blocks, tiles and pages, and none.
std::vector<Lengths> ragged(std::mt19937_64& random, const AttentionConfig& config, size_t batch) {
  const int64_t edges[] = {0, 1, 15, 16, 31, 32, 33, 47, 63, 64, 65, 100, 129};
  std::vector<Lengths> lengths(batch);
  const int64_t q = edges[draw(random, 1, 12)], k = edges[draw(random, 1, 12)];
  for (Lengths& one : lengths) {
    one.q = config.varlen ? edges[draw(random, 0, 12)] : q;
    one.k = config.varlen || config.lengths ? edges[draw(random, 0, 12)] : k;
  }
  return lengths;
}

struct Layout {
  bool varlen, lengths;
  int64_t page;
};
constexpr Layout kLayouts[] = {{true, false, 0},  {false, true, 0}, {true, true, 0},
                               {false, true, 16}, {true, true, 32}, {true, true, 64}};

AttentionConfig with(AttentionConfig config, const Layout& layout) {
  config.varlen = layout.varlen;
  config.lengths = layout.lengths;
  config.page = layout.page;
  return config;
}

}  // namespace

TEST_CASE("sequences of all lengths, packed, in a cache and in pages", "[attention][sequences]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices())
    for (const Layout& layout : kLayouts)
      for (auto form : {BlockForm::MaskBool, BlockForm::Lists, BlockForm::Dense}) {
        AttentionConfig config = with(small_config(), layout);
        config.form = form;
        config.causal = draw(random, 0, 3) > 0;
        config.dtype = draw(random, 0, 1) ? BF16 : F16;
        const int64_t blocks[] = {16, 32, 64};
        config.block = {blocks[draw(random, 0, 2)], blocks[draw(random, 0, 2)]};
        const int64_t group = draw(random, 1, 3), heads_kv = draw(random, 1, 2);
        BatchCase one(config, ragged(random, config, 4), group * heads_kv, heads_kv, random());
        one.check(device(where));
      }
}

TEST_CASE("an emulated GPU reads sequences where they lie", "[attention][sequences][emulator]") {
  std::mt19937_64 random(run_seed());
  for (const Layout& layout : {kLayouts[0], kLayouts[3], kLayouts[5]}) {
    AttentionConfig config = with(small_config(), layout);
    config.block = draw(random, 0, 1) ? 32 : 64;
    config.form = draw(random, 0, 1) ? BlockForm::Lists : BlockForm::MaskBool;
    BatchCase one(config, ragged(random, config, 2), 2, 1, random());
    one.check(device("emulator"));
  }
}

TEST_CASE("a batch equals its sequences", "[attention][sequences]") {
  const AttentionConfig config = with(small_config(), {true, false, 0});
  BatchCase all(config, {{40, 70}, {0, 5}, {1, 64}, {64, 64}, {33, 10}}, 4, 2, run_seed());
  all.run(fast_device());
  for (size_t b = 0; b < all.lengths.size(); ++b) {
    BatchCase one(config, {all.lengths[b]}, 4, 2, 0);
    one.take_elements(all, b);
    one.run(fast_device());
    CHECK(one.result(0) == all.result(b));
  }
}

TEST_CASE("chunks behind a history in pages equal the whole", "[attention][sequences]") {
  AttentionConfig whole = with(small_config(), {true, false, 0}), paged = small_config();
  paged.varlen = true;
  paged.page = 16;
  const std::vector<Lengths> lengths = {{96, 96}, {160, 160}, {64, 64}};
  BatchCase all(whole, lengths, 2, 1, run_seed());
  all.run(fast_device());
  for (int64_t chunk : {32, 64, 96}) {
    std::vector<std::vector<double>> parts(lengths.size());
    for (int64_t done = 0; done < 160; done += chunk) {
      // The queries done … of each sequence, and the keys up to theirs.
      std::vector<Lengths> step;
      for (const Lengths& one : lengths) {
        const int64_t end = std::min(done + chunk, one.q);
        step.push_back({std::max<int64_t>(end - done, 0), end});
      }
      BatchCase part(paged, step, 2, 1, 0);
      part.take_chunk(all, done);
      part.run(fast_device());
      for (size_t b = 0; b < lengths.size(); ++b) {
        const std::vector<double> rows = part.result(b);
        parts[b].insert(parts[b].end(), rows.begin(), rows.end());
      }
    }
    for (size_t b = 0; b < lengths.size(); ++b) {
      const std::vector<double> expected = all.result(b);
      REQUIRE(parts[b].size() == expected.size());
      CHECK(parts[b] == expected);
    }
  }
}

TEST_CASE("queries stand where q_start says", "[attention][sequences]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices())
    for (const Layout& layout : {kLayouts[0], kLayouts[2], kLayouts[4]}) {
      AttentionConfig config = with(small_config(), layout);
      config.q_start = true;
      BatchCase one(config, {{33, 100}, {5, 64}, {0, 7}, {40, 41}}, 2, 1, random());
      one.use_starts({draw(random, 0, 67), 59, 3, 0});
      one.check(device(where));
    }
}

TEST_CASE("lengths at every edge, in one call", "[attention][sequences]") {
  std::mt19937_64 random(run_seed());
  const std::vector<int64_t> edges = {0,  1,  15, 16,  17,  31,  32,  33,  47,
                                      63, 64, 65, 127, 128, 129, 130, 200, 1000};
  std::vector<Lengths> lengths;
  for (size_t i = 0; i < edges.size(); ++i) {
    lengths.push_back({edges[i], edges[i]});
    lengths.push_back({edges[i], edges[(i * 7 + 3) % edges.size()]});
  }
  for (bool causal : {true, false}) {
    AttentionConfig config = with(small_config(), kLayouts[causal ? 0 : 4]);
    config.causal = causal;
    config.head_dim = config.head_dim_v = 16;
    config.block = 64;
    BatchCase one(config, lengths, 1, 1, random());
    one.check(fast_device());
  }
}

TEST_CASE("a list of the last block alone sees what is left of it", "[attention][sequences]") {
  // 130 keys, blocks of 128: keys 128 and 129, whose values are 1; all others are NaN.
  for (bool varlen : {false, true})
    for (auto where : devices()) {
      AttentionConfig config{.head_dim = 16, .block = 128, .form = BlockForm::Lists};
      config.varlen = varlen;
      BatchCase one(config, {{40, 130}}, 1, 1, 1);
      one.mask.set(0, 0);
      one.mask.set(1, 1);
      BlockLists lists = to_lists(one.mask);
      one.args.counts = lists.counts.view();
      one.args.indices = lists.indices.view();
      for (int64_t j = 0; j < 130; ++j)
        for (int64_t d = 0; d < 16; ++d)
          static_cast<uint16_t*>(one.args.v.data)[j * 16 + d] = j < 128 ? 0x7e00 : 0x3c00;
      one.run(device(where));
      for (double value : one.result(0)) CHECK(value == 1);
    }
}

TEST_CASE("70,000 tokens", "[attention][sequences]") {
  // More rows of blocks than a grid's second and third extents may have; each sees itself.
  AttentionConfig config{.head_dim = 16, .block = 64, .causal = true, .form = BlockForm::Lists};
  config.varlen = true;
  BatchCase one(config, {{70000, 70000}}, 1, 1, run_seed());
  Array counts(I32, {1, 1, 1094}), indices(I32, {1, 1, 1094, 1});
  for (int64_t row = 0; row < 1094; ++row) {
    counts.set(row, 1);
    indices.set(row, static_cast<double>(row));
  }
  one.args.counts = counts.view();
  one.args.indices = indices.view();
  one.run(fast_device());
  const std::vector<int64_t> rows = {0, 1, 64, 35000, 65535, 65536, 69999};
  const AttentionReference reference = attention_reference(one.config, one.args, rows);
  CHECK(compare(rows_of(one.args, one.args.o, rows), reference.o, 16, accuracy_rule(F16)).ok());
}

TEST_CASE("one query, 64 and 512 in one call", "[attention][sequences]") {
  AttentionConfig config = small_config();
  config.varlen = true;
  config.page = 64;
  config.block = 64;
  BatchCase one(config, {{1, 300}, {64, 200}, {512, 600}}, 2, 1, run_seed());
  one.check(fast_device());
}

TEST_CASE("of sequences, what a caller gets wrong", "[attention][sequences][errors]") {
  const auto expect = [](const char* sentence, const Layout& layout,
                         const std::function<void(AttentionArgs&)>& spoil) {
    BatchCase one(with(small_config(), layout), {{40, 64}, {40, 64}}, 2, 1, 1);
    spoil(one.args);
    INFO(sentence);
    CHECK_THROWS_WITH(one.run(device("host")), Contains(sentence));
    CHECK_THROWS_AS(one.run(device("host")), UserError);
  };
  const Layout &packed = kLayouts[0], &cache = kLayouts[1], &pages = kLayouts[3];
  expect("cu_seqlens_q: missing", packed, [](auto& a) { a.cu_seqlens_q.reset(); });
  expect("cu_seqlens_k: missing", packed, [](auto& a) { a.cu_seqlens_k.reset(); });
  expect("cu_seqlens_k: expected shape [3], got [2]", packed,
         [](auto& a) { a.cu_seqlens_k->shape[0] = 2; });
  expect("cu_seqlens_q: expected dtype i32, got i64", packed,
         [](auto& a) { a.cu_seqlens_q->dtype = I64; });
  expect("max_seqlen_q: expected the longest sequence's tokens, got nothing", packed,
         [](auto& a) { a.max_seqlen_q.reset(); });
  expect("max_seqlen_k: expected the longest sequence's tokens, got -1", packed,
         [](auto& a) { a.max_seqlen_k = -1; });
  expect("mask: expected at least [2, 2, 3, 2], got [2, 2, 2, 2]", packed,
         [](auto& a) { a.max_seqlen_q = 65; });
  expect("q: expected shape [tokens, heads, dim], got [2, 2, 40, 32]", packed, [](auto& a) {
    a.q.shape = {2, 2, 40, 32};
    a.q.strides = {2560, 1280, 32, 1};
  });
  expect("lengths: missing", cache, [](auto& a) { a.lengths.reset(); });
  expect("lengths: expected shape [2], got [1]", cache, [](auto& a) { a.lengths->shape[0] = 1; });
  expect("cu_seqlens_q: given, but the kernel was compiled without varlen", cache,
         [](auto& a) { a.cu_seqlens_q = a.lengths; });
  expect("table: missing", pages, [](auto& a) { a.table.reset(); });
  expect("table: given, but the kernel was compiled without pages", cache,
         [](auto& a) { a.table = a.lengths; });
  expect("k: expected shape [16, 16, 1, 32], got [16, 8, 1, 32]", pages,
         [](auto& a) { a.k.shape[0] = 16, a.k.shape[1] = 8; });
  AttentionConfig config = small_config();
  config.page = 24;
  CHECK_THROWS_WITH(validated(config),
                    Contains("page: expected 0 or a multiple of 16 up to 1048576, got 24"));
}

TEST_CASE("of sequences, what a device finds wrong", "[attention][sequences][errors]") {
  const auto expect = [](const char* sentence, const Layout& layout, bool q_start,
                         const std::function<void(AttentionArgs&)>& spoil) {
    AttentionConfig config = with(small_config(), layout);
    config.checked = true;
    config.q_start = q_start;
    for (auto where : {"host", "interpreter"}) {
      BatchCase one(config, {{40, 64}, {20, 64}}, 2, 1, 1);
      CHECK_NOTHROW(one.run(device(where)));
      spoil(one.args);
      INFO(sentence);
      CHECK_THROWS_WITH(one.run(device(where)), Contains(sentence));
    }
  };
  const auto set = [](const std::optional<Memory>& memory, int64_t at, int32_t value) {
    static_cast<int32_t*>(memory->data)[at] = value;
  };
  expect("cu_seqlens_q: expected numbers that do not become smaller", kLayouts[0], false,
         [&](auto& a) { set(a.cu_seqlens_q, 2, 39); });
  expect("cu_seqlens_k: expected no more tokens than k has", kLayouts[0], false,
         [&](auto& a) { set(a.cu_seqlens_k, 2, 5000); });
  expect("cu_seqlens_q: expected no sequence longer than max_seqlen_q", kLayouts[0], false,
         [&](auto& a) { set(a.cu_seqlens_q, 1, 45); });
  expect("lengths: expected 0 to the cache's keys", kLayouts[2], false,
         [&](auto& a) { set(a.lengths, 1, 70); });
  expect("table: expected a page of the cache", kLayouts[4], false,
         [&](auto& a) { set(a.table, 1, -1); });
  expect("q_start: expected 0 or more, with keys for all queries behind it", kLayouts[0], true,
         [&](auto& a) { set(a.q_start, 0, 25); });
}
