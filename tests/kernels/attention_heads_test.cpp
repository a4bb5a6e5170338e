// Heads of several kinds in one call: dense, sparse, and streaming by blocks or tokens.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "ir/error.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/batch_case.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

AttentionConfig mixed_config(Streaming streaming) {
  AttentionConfig config{.head_dim = 32, .block = 32, .causal = true, .lse = true};
  config.head_types = true;
  config.streaming = streaming;
  return config;
}

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

std::vector<HeadKind> random_kinds(std::mt19937_64& random, int64_t heads, Streaming streaming) {
  std::vector<HeadKind> kinds(static_cast<size_t>(heads));
  const int64_t unit = streaming == Streaming::Tokens ? 40 : 3;
  for (HeadKind& kind : kinds) {
    kind.type = draw(random, streaming == Streaming::None ? 0 : -2, 1);
    kind.sink = draw(random, 0, unit);
    kind.local = draw(random, 1, unit);
  }
  return kinds;
}

// Columns of blocks that a streaming head's row may look at, by the library's float64.
std::vector<int64_t> seen_blocks(int64_t seq, int64_t seq_kv, int64_t row, HeadKind kind,
                                 bool causal = true) {
  AttentionConfig config = mixed_config(Streaming::Blocks);
  config.block = 128;
  config.causal = causal;
  config.form = BlockForm::Dense;
  BatchCase one(config, {{seq, seq_kv}}, 1, 1, 1);
  one.use({kind});
  const Array mask = effective_mask(one.config, one.args);
  std::vector<int64_t> seen;
  for (int64_t c = 0; c < mask.shape()[3]; ++c)
    if (mask.get(row * mask.shape()[3] + c) != 0) seen.push_back(c);
  return seen;
}

}  // namespace

TEST_CASE("heads of random kinds, at ragged lengths", "[attention][heads]") {
  std::mt19937_64 random(run_seed());
  for (auto where : devices())
    for (auto streaming : {Streaming::None, Streaming::Blocks, Streaming::Tokens})
      for (auto form : {BlockForm::MaskBool, BlockForm::Lists, BlockForm::Dense})
        for (bool varlen : {false, true}) {
          AttentionConfig config = mixed_config(streaming);
          config.form = form;
          config.varlen = varlen;
          config.causal = streaming == Streaming::Tokens || draw(random, 0, 2) > 0;
          const int64_t blocks[] = {16, 32, 64};
          config.block = {blocks[draw(random, 0, 2)], blocks[draw(random, 0, 2)]};
          std::vector<Lengths> lengths(2, {draw(random, 1, 130), draw(random, 1, 130)});
          if (varlen) lengths[1] = {draw(random, 0, 130), draw(random, 0, 130)};
          const int64_t heads = 2 * draw(random, 1, 3);
          BatchCase one(config, lengths, heads, 2, random());
          std::vector<HeadKind> kinds = random_kinds(random, heads, streaming);
          if (form == BlockForm::Dense)
            for (HeadKind& kind : kinds) kind.type = std::min<int64_t>(kind.type, 0);
          one.use(kinds);
          one.check(device(where));
        }
}

TEST_CASE("an emulated GPU mixes heads", "[attention][heads][emulator]") {
  std::mt19937_64 random(run_seed());
  for (auto streaming : {Streaming::Blocks, Streaming::Tokens}) {
    AttentionConfig config = mixed_config(streaming);
    config.varlen = true;
    BatchCase one(config, {{70, 100}, {33, 33}}, 4, 2, random());
    one.use({{1}, {0}, {-1, 1, 2}, {1}});
    one.check(device("emulator"));
  }
}

TEST_CASE("sparse heads have planes in their order", "[attention][heads]") {
  // Types 1, 0, 1, −1: planes 0, –, 1, –. Each plane selects another block.
  AttentionConfig config = mixed_config(Streaming::Blocks);
  config.causal = false;
  for (auto where : devices()) {
    BatchCase one(config, {{32, 96}}, 4, 1, run_seed());
    one.use({{1}, {0}, {1}, {-1, 1, 0}});
    REQUIRE(one.mask.shape() == Shape{1, 2, 1, 3});
    for (int64_t i = 0; i < 6; ++i) one.mask.set(i, i == 1 || i == 5);
    one.args.mask = one.mask.view();
    one.check(device(where));
    const Array seen = effective_mask(one.config, one.args);
    CHECK(seen.values() == std::vector<double>{0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0});
  }
}

TEST_CASE("more than 64 heads keep their planes", "[attention][heads]") {
  AttentionConfig config = mixed_config(Streaming::None);
  config.head_dim = 16;
  std::mt19937_64 random(run_seed());
  BatchCase one(config, {{40, 70}}, 150, 75, random());
  one.use(random_kinds(random, 150, Streaming::None));
  for (auto where : devices()) one.check(device(where));
}

// sparse-attention.md §2.1: sink 1, local 2 blocks of 128.
TEST_CASE("blocks of a streaming head", "[attention][heads]") {
  using Blocks = std::vector<int64_t>;
  const HeadKind kind{-1, 1, 2};
  CHECK(seen_blocks(1024, 1024, 0, kind) == Blocks{0});
  CHECK(seen_blocks(1024, 1024, 3, kind) == Blocks{0, 2, 3});
  CHECK(seen_blocks(1024, 1024, 7, kind) == Blocks{0, 6, 7});
  CHECK(seen_blocks(256, 1000, 0, kind) == Blocks{0, 5, 6});
  CHECK(seen_blocks(256, 1000, 1, kind) == Blocks{0, 6, 7});
  CHECK(seen_blocks(1000, 256, 0, kind).empty());
  CHECK(seen_blocks(1000, 256, 5, kind) == Blocks{0});
  CHECK(seen_blocks(1000, 256, 7, kind) == Blocks{0, 1});
  // The last block is the last query's: there is no block 2 of 130 keys.
  CHECK(seen_blocks(1, 130, 0, {-1, 0, 1}) == Blocks{1});
  CHECK(seen_blocks(300, 600, 1, kind, false) == Blocks{0, 3, 4});
}

TEST_CASE("a sink of 0 is a sliding window", "[attention][heads]") {
  // Values that tell their key: the mean of those in the window.
  AttentionConfig config{.dtype = F32, .head_dim = 16, .block = 16, .causal = true};
  config.form = BlockForm::Dense;
  config.head_types = true;
  config.streaming = Streaming::Tokens;
  Array q(F32, {1, 1, 20, 16}), k(F32, {1, 1, 50, 16}), v(F32, {1, 1, 50, 16}),
      o(F32, {1, 1, 20, 16});
  for (int64_t j = 0; j < 50; ++j)
    for (int64_t d = 0; d < 16; ++d) v.set(j * 16 + d, static_cast<double>(j));
  Array types(I32, {1}, std::vector<double>{-1}), info(I32, {1, 2}, std::vector<double>{0, 5});
  AttentionArgs args{q.view(), k.view(), v.view(), o.view()};
  args.head_mask_type = types.view();
  args.streaming_info = info.view();
  block_sparse_attention(device("host"), config)(args);
  for (int64_t i = 0; i < 20; ++i)
    CHECK(o.get(i * 16) == Approx(30.0 + static_cast<double>(i) - 2));
}

TEST_CASE("dense heads are dense attention", "[attention][heads]") {
  AttentionConfig mixed = mixed_config(Streaming::None), dense = mixed;
  dense.head_types = false;
  dense.form = BlockForm::Dense;
  BatchCase a(mixed, {{70, 90}}, 2, 1, 5), b(dense, {{70, 90}}, 2, 1, 5);
  a.use({{0}, {0}});
  a.run(fast_device());
  b.run(fast_device());
  CHECK(a.result(0) == b.result(0));
}

TEST_CASE("kinds of heads that cannot be", "[attention][heads][errors]") {
  const auto expect = [](const char* sentence, const std::function<void(AttentionConfig&)>& spoil) {
    AttentionConfig config = mixed_config(Streaming::Tokens);
    spoil(config);
    CHECK_THROWS_WITH(validated(config), Contains(sentence));
    CHECK_THROWS_AS(validated(config), UserError);
  };
  expect("streaming: expected none without head_types", [](auto& c) { c.head_types = false; });
  expect("streaming: expected blocks or none without causal, got tokens",
         [](auto& c) { c.causal = false; });
  expect("p_dropout: expected 0, got 0.1", [](auto& c) { c.p_dropout = 0.1F; });
  expect("backward: expected false; only the forward pass is there",
         [](auto& c) { c.backward = true; });

  const auto call = [](const char* sentence, const std::function<void(AttentionArgs&)>& spoil) {
    BatchCase one(mixed_config(Streaming::Blocks), {{40, 40}}, 2, 1, 1);
    spoil(one.args);
    CHECK_THROWS_WITH(one.run(device("host")), Contains(sentence));
  };
  call("head_mask_type: missing", [](auto& a) { a.head_mask_type.reset(); });
  call("head_mask_type: expected shape [2], got [1]",
       [](auto& a) { a.head_mask_type->shape[0] = 1; });
  call("streaming_info: missing", [](auto& a) { a.streaming_info.reset(); });
  call("streaming_info: expected shape [2, 2], got [2, 1]",
       [](auto& a) { a.streaming_info->shape[1] = 1; });
  call("mask: expected at most 2 planes, one a sparse head, got 3",
       [](auto& a) { a.mask->shape[1] = 3; });
}

TEST_CASE("kinds of heads that a device finds wrong", "[attention][heads][errors]") {
  const auto expect = [](const char* sentence, Streaming streaming,
                         const std::vector<HeadKind>& kinds, bool planes = true) {
    AttentionConfig config = mixed_config(streaming);
    config.checked = true;
    if (!planes) config.form = BlockForm::Dense;
    for (auto where : {"host", "interpreter"}) {
      BatchCase one(config, {{40, 40}}, 3, 1, 1);
      one.use({{0}, {0}, {0}});
      CHECK_NOTHROW(one.run(device(where)));
      BatchCase bad(config, {{40, 40}}, 3, 1, 1);
      const Array mask = bad.mask;
      bad.use(kinds);
      if (planes && std::string(sentence).find("planes") != std::string::npos)
        bad.args.mask = mask.view();
      INFO(sentence);
      CHECK_THROWS_WITH(bad.run(device(where)), Contains(sentence));
    }
  };
  expect("head_mask_type: expected 0, 1 or negative", Streaming::Blocks, {{0}, {2}, {0}});
  expect("head_mask_type: expected 0 or 1 of a kernel without streaming", Streaming::None,
         {{0}, {-1}, {0}});
  expect("head_mask_type: expected as many sparse heads as planes", Streaming::Blocks,
         {{1}, {0}, {1}});
  expect("head_mask_type: expected no sparse head without a mask", Streaming::Blocks,
         {{1}, {0}, {0}}, false);
  expect("streaming_info: expected a sink of 0 or more", Streaming::Blocks,
         {{-1, -2, 1}, {0}, {0}});
  expect("streaming_info: expected local tokens of 1 or more", Streaming::Tokens,
         {{-1, 0, 0}, {0}, {0}});
}
