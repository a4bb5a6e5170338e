// xattention_prefill: attention right on what was chosen, the choice right by float64's sums.
#include "kernels/xattention/prefill.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/compare.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/batch_case.h"
#include "tests/kernels/entry_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

int64_t draw(std::mt19937_64& random, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(random);
}

AttentionConfig data_config(const PrefillConfig& config) {
  AttentionConfig data = config.attention();
  data.form = BlockForm::Dense;
  data.per_kv_head = false;
  return data;
}

PrefillConfig small_config() {
  PrefillConfig config{.head_dim = 32, .block = 64, .lse = true, .choice = true};
  config.dense_below = 0;
  return config;
}

struct PrefillCase {
  PrefillConfig config;
  BatchCase data;
  Array mask, counts, indices;
  PrefillArgs args;

  PrefillCase(const PrefillConfig& wanted, std::vector<Lengths> lengths, int64_t heads,
              int64_t heads_kv, uint64_t seed)
      : config(validated(wanted, fast_device().target())),
        data(data_config(config), std::move(lengths), heads, heads_kv, seed) {
    const BatchSizes sizes = sizes_of(data.config, data.args);
    const int64_t out = config.select.reduce == HeadReduce::None ? heads : heads_kv;
    const int64_t rows = (sizes.seq + config.block - 1) / config.block;
    const int64_t cols = (sizes.seq_kv + config.block - 1) / config.block;
    mask = Array(Bool, {sizes.batch, out, rows, cols});
    counts = Array(I32, {sizes.batch, out, rows});
    indices = Array(I32, {sizes.batch, out, rows, cols});
    update();
  }
  // After a change of data.args.
  void update() {
    const AttentionArgs& from = data.args;
    args.q = from.q, args.k = from.k, args.v = from.v, args.o = from.o;
    args.lse = from.lse;
    take_sequences(from, args);
    if (config.lengths) args.max_seqlen_k = mask.shape()[3] * config.block;
    if (!config.choice) return;
    args.mask = mask.view();
    args.counts = counts.view();
    args.indices = indices.view();
  }
  void run(Device& device) {
    for (Array* array : {&counts, &indices}) fill(*array, 77);
    fill(mask, 1);
    const XattentionPrefill prefill = xattention_prefill(device, config);
    kiln::testing::run_on(device, *prefill.executable(), prefill.bind(args));
  }
  void check(Device& device) {
    run(device);
    INFO(data.describe() << " on " << device.name());
    AttentionConfig attended = validated(config.attention());
    AttentionArgs with_lists = attention_of(args);
    with_lists.counts = counts.view();
    with_lists.indices = indices.view();
    const AttentionReference expected =
        attention_reference(attended, with_lists, all_rows(with_lists));
    const Comparison outputs = compare(rows_of(with_lists, args.o, expected.rows), expected.o,
                                       config.dim_v(), accuracy_rule(config.dtype));
    INFO("o: " << outputs.str());
    CHECK(outputs.ok());
    const Comparison sums = compare(rows_of(with_lists, *args.lse, expected.rows), expected.lse, 1,
                                    lse_accuracy_rule());
    INFO("lse: " << sums.str());
    CHECK(sums.ok());
    CHECK(effective_mask(attended, with_lists).values() == expand_heads(mask.values()));
    check_choice();
  }
  // By float64's sums: enough mass, and no block more than that takes.
  void check_choice() {
    EstimateArgs estimate = estimate_of(args);
    Array sums(F32, {mask.shape()[0], data.heads, mask.shape()[2], mask.shape()[3]});
    estimate.sums = sums.view();
    estimate.mask = mask.view();
    const EstimateConfig c = validated(config.estimate());
    const std::vector<double> oracle = estimate_sums(c, estimate);
    const ChoiceResults wanted = estimate_choice(c, estimate, oracle);
    const auto cols = static_cast<size_t>(std::max<int64_t>(mask.shape()[3], 1));
    for (size_t row = 0; row < wanted.mask.size(); row += cols) {
      double here = 0, there = 0;
      for (size_t i = row; i < row + cols; ++i) {
        here += mask.get(static_cast<int64_t>(i));
        there += wanted.mask[i];
      }
      CHECK(std::abs(here - there) <= 1);
      CHECK(counts.get(static_cast<int64_t>(row / cols)) == here);
    }
  }
  // A plane of each kv head as those of its heads.
  std::vector<double> expand_heads(const std::vector<double>& planes) const {
    const int64_t group = data.heads / mask.shape()[1];
    const auto cells = static_cast<size_t>(mask.shape()[2] * mask.shape()[3]);
    std::vector<double> all;
    for (size_t plane = 0; cells && plane < planes.size() / cells; ++plane)
      for (int64_t member = 0; member < group; ++member)
        all.insert(all.end(), planes.begin() + static_cast<int64_t>(plane * cells),
                   planes.begin() + static_cast<int64_t>((plane + 1) * cells));
    return all;
  }
};

}  // namespace

TEST_CASE("xattention_prefill: any batch, wherever it lies", "[prefill]") {
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 16 : 1); ++round) {
      PrefillConfig config = small_config();
      config.dtype = draw(random, 0, 1) ? F16 : BF16;
      config.stride = int64_t{4} << draw(random, 0, 2);
      config.block = draw(random, 0, 1) ? 64 : 128;
      config.head_dim_v = draw(random, 0, 1) ? 16 : 0;
      config.causal = draw(random, 0, 3) > 0;
      config.varlen = draw(random, 0, 1);
      config.lengths = draw(random, 0, 2) == 0;
      if (draw(random, 0, 2) == 0) config.page = int64_t{16} << draw(random, 0, 3);
      if (config.page) config.lengths = true;
      config.select.reduce = static_cast<HeadReduce>(draw(random, 0, 3));
      const int64_t most = name == "host" ? 700 : 200;
      std::vector<Lengths> lengths(name == "host" ? 3 : 1, {draw(random, 1, most), 0});
      const int64_t keys = draw(random, 1, most);
      for (Lengths& one : lengths) {
        if (config.varlen) one.q = draw(random, 0, most);
        one.k = config.varlen || config.lengths ? draw(random, 0, most) : keys;
      }
      PrefillCase c(config, lengths, 4, 2, random());
      c.args.threshold = std::array{0.9F, 0.5F, 0.99F}[draw(random, 0, 2)];
      c.check(device(name));
    }
}

TEST_CASE("xattention_prefill: threshold 1 equals dense attention", "[prefill]") {
  PrefillConfig config = small_config();
  config.varlen = true;
  PrefillCase c(config, {{300, 300}, {65, 500}, {1, 129}}, 4, 2, run_seed());
  c.args.threshold = 1.0F;
  c.run(fast_device());
  const AttentionReference dense =
      attention_reference(c.data.config, c.data.args, all_rows(c.data.args));
  CHECK(compare(rows_of(c.data.args, c.args.o, dense.rows), dense.o, 32, accuracy_rule(F16)).ok());
}

TEST_CASE("xattention_prefill: what is chosen may stay inside", "[prefill]") {
  PrefillConfig config = small_config();
  config.page = 32;
  config.varlen = true;
  PrefillCase given(config, {{200, 400}, {64, 64}}, 4, 2, 3);
  config.choice = false;
  PrefillCase inside(config, {{200, 400}, {64, 64}}, 4, 2, 3);
  for (auto where : devices()) {
    given.run(device(where));
    inside.run(device(where));
    for (size_t b = 0; b < 2; ++b) CHECK(given.data.result(b) == inside.data.result(b));
  }
}

TEST_CASE("xattention_prefill: a batch equals its sequences", "[prefill]") {
  PrefillConfig config = small_config();
  config.varlen = true;
  PrefillCase all(config, {{300, 300}, {0, 5}, {129, 640}}, 4, 2, run_seed());
  all.run(fast_device());
  for (size_t b = 0; b < 3; ++b) {
    PrefillCase one(config, {all.data.lengths[b]}, 4, 2, 0);
    one.data.take_elements(all.data, b);
    one.run(fast_device());
    CHECK(one.data.result(0) == all.data.result(b));
  }
}

TEST_CASE("xattention_prefill: chunks behind a history in pages", "[prefill]") {
  // Five sequences; chunks of whole blocks choose, and give, what all at once does. `chunk`, how
  // many queries the public code looks at together, changes nothing.
  PrefillConfig whole = small_config(), paged = small_config();
  whole.varlen = paged.varlen = true;
  paged.page = 16;
  paged.chunk = 2048;
  const std::vector<Lengths> lengths = {{512, 512}, {130, 130}, {64, 64}, {1, 1}, {400, 400}};
  PrefillCase all(whole, lengths, 4, 2, run_seed());
  all.args.threshold = 0.8F;
  all.run(fast_device());
  for (int64_t chunk : {64, 192}) {
    std::vector<std::vector<double>> parts(lengths.size());
    for (int64_t done = 0; done < 512; done += chunk) {
      std::vector<Lengths> step;
      for (const Lengths& one : lengths) {
        const int64_t end = std::min(done + chunk, one.q);
        step.push_back({std::max<int64_t>(end - done, 0), end});
      }
      PrefillCase part(paged, step, 4, 2, 0);
      part.data.take_chunk(all.data, done);
      part.args.threshold = 0.8F;
      part.run(fast_device());
      for (size_t b = 0; b < lengths.size(); ++b) {
        const std::vector<double> rows = part.data.result(b);
        parts[b].insert(parts[b].end(), rows.begin(), rows.end());
      }
    }
    for (size_t b = 0; b < lengths.size(); ++b) CHECK(parts[b] == all.data.result(b));
  }
}

TEST_CASE("xattention_prefill: 1, 64 and 500 queries behind any history", "[prefill]") {
  std::mt19937_64 random(run_seed());
  for (int64_t chunk : {1, 64, 500}) {
    PrefillConfig config = small_config();
    config.varlen = true;
    config.page = 64;
    config.head_dim = 16;
    std::vector<Lengths> lengths;
    for (int64_t history : {int64_t{0}, int64_t{1}, draw(random, 2, 700), int64_t{1280}})
      lengths.push_back({chunk, history + chunk});
    PrefillCase c(config, lengths, 2, 1, random());
    c.check(fast_device());
  }
}

TEST_CASE("xattention_prefill: keys behind a row of blocks change nothing of it", "[prefill]") {
  const PrefillConfig config = small_config();
  PrefillCase a(config, {{256, 256}}, 2, 1, 11), b(config, {{256, 256}}, 2, 1, 11);
  for (int64_t j = 128; j < 256; ++j)
    for (int64_t d = 0; d < 32; ++d) {
      const int64_t at = (j * 32 + d) * 2;
      static_cast<uint16_t*>(b.args.k.data)[at / 2] ^= 0x8111;
      static_cast<uint16_t*>(b.args.v.data)[at / 2] ^= 0x8111;
    }
  a.run(fast_device());
  b.run(fast_device());
  const std::vector<double> first = a.data.result(0), second = b.data.result(0);
  const size_t half = first.size() / 2;
  CHECK(std::equal(first.begin(), first.begin() + static_cast<int64_t>(half), second.begin()));
  CHECK(first != second);
}

TEST_CASE("xattention_prefill: short sequences are dense", "[prefill]") {
  PrefillConfig config = small_config();
  config.varlen = true;
  config.dense_below = 300;
  for (auto reduce : {HeadReduce::None, HeadReduce::Mean, HeadReduce::Majority}) {
    config.select.reduce = reduce;
    PrefillCase c(config, {{299, 299}, {300, 300}, {64, 200}}, 4, 2, run_seed());
    c.args.threshold = 0.3F;
    for (auto where : devices()) c.check(device(where));
    const int64_t out = c.mask.shape()[1], rows = c.mask.shape()[2];
    int64_t fewer = 0;
    for (int64_t h = 0; h < out; ++h)
      for (int64_t r = 0; r < 5; ++r) {
        CHECK(c.counts.get(h * rows + r) == r + 1);
        if (r == 0) CHECK(c.counts.get((2 * out + h) * rows + r) == 4);
        fewer += c.counts.get((out + h) * rows + r) < r + 1;
      }
    CHECK(fewer > 0);
  }
}

TEST_CASE("xattention_prefill: memory is a small part of the matrix of scores", "[prefill]") {
  const PrefillConfig config;
  const XattentionPrefill prefill = xattention_prefill(device("host"), config);
  for (int64_t seq : {1024, 32768, 131072, 1048576}) {
    const uint64_t bytes = prefill.workspace_bytes(
        {.batch = 1, .heads = 32, .heads_kv = 8, .seq = seq, .seq_kv = seq});
    const auto cells = static_cast<uint64_t>(seq / config.stride);
    CHECK(bytes <= 32 * cells * cells * 2 / 16);  // of 16-bit scores
  }
}

TEST_CASE("xattention_prefill: mistakes are sentences", "[prefill][errors]") {
  const auto expect = [](const char* sentence, const std::function<void(PrefillConfig&)>& spoil) {
    PrefillConfig config = small_config();
    spoil(config);
    CHECK_THROWS_WITH(validated(config), Contains(sentence));
    CHECK_THROWS_AS(xattention_prefill(device("host"), config), UserError);
  };
  expect("block: expected 64 or 128, got 256", [](auto& c) { c.block = 256; });
  expect("stride: expected 4, 8 or 16, got 32", [](auto& c) { c.stride = 32; });
  expect("stride: expected 4, 8 or 16, which divide block 64, got 12",
         [](auto& c) { c.stride = 12; });
  expect("select_mode: expected inverse, got slash",
         [](auto& c) { c.select_mode = SelectMode::Slash; });
  expect("chunk: expected 2048 to 131072, got 1000", [](auto& c) { c.chunk = 1000; });
  expect("dense_below: expected 0 or more, got -1", [](auto& c) { c.dense_below = -1; });
  expect("list: expected true, since the attention follows the lists",
         [](auto& c) { c.select.list = false; });
  expect("page: expected 0 or a multiple of 16", [](auto& c) { c.page = 8; });

  const auto call = [](const char* sentence, const std::function<void(PrefillArgs&)>& spoil) {
    PrefillConfig config = small_config();
    config.varlen = true;
    PrefillCase c(config, {{100, 100}}, 4, 2, 1);
    spoil(c.args);
    CHECK_THROWS_WITH(c.run(device("host")), Contains(sentence));
  };
  call("threshold: expected above 0, at most 1, got 1.5", [](auto& a) { a.threshold = 1.5F; });
  call("threshold: expected above 0, at most 1, got 0", [](auto& a) { a.threshold = 0.0F; });
  call("norm: expected a finite number above 0, got 0", [](auto& a) { a.norm = 0; });
  call("scale: expected a finite number above 0, got -1", [](auto& a) { a.scale = -1; });
  call("mask: missing", [](auto& a) { a.mask.reset(); });
  call("mask: expected shape [1, 4, 2, 2], got [1, 4, 2, 1]",
       [](auto& a) { a.mask->shape[3] = 1; });
  call("thresholds: given, but the kernel was compiled without per_head",
       [](auto& a) { a.thresholds = a.counts; });
  call("v: expected shape [105, 2, 32], got [104, 2, 32]", [](auto& a) { a.v.shape[0] = 104; });
  call("heads: expected a multiple of the 2 heads of k and v, got 3",
       [](auto& a) { a.q.shape[1] = a.o.shape[1] = 3; });
}

TEST_CASE("xattention_prefill: what a device finds wrong", "[prefill][errors]") {
  PrefillConfig config = small_config();
  config.varlen = config.q_start = config.checked = true;
  PrefillCase c(config, {{100, 100}}, 2, 1, 1);
  for (auto where : {"host", "interpreter"}) {
    CHECK_NOTHROW(c.run(device(where)));
    c.data.use_starts({1});
    c.update();
    CHECK_THROWS_WITH(c.run(device(where)),
                      Contains("q_start: expected 0 or more, with keys for all queries behind it"));
    c.data.use_starts({0});
    c.update();
  }
}

TEST_CASE("xattention_prefill: a call takes little beside a matrix of scores", "[prefill]") {
  for (int64_t stride : {4, 8, 16}) {
    PrefillConfig config;
    config.stride = stride;
    const XattentionPrefill prefill = xattention_prefill(device("host"), config);
    for (int64_t heads : {1, 8, 32, 128})
      for (int64_t seq : {2048, 3000, 4096, 8192, 16384, 32768, 131072, 1 << 20}) {
        const PrefillLimits limits{
            .batch = 1, .heads = heads, .heads_kv = heads, .seq = seq, .seq_kv = seq};
        const double cells = static_cast<double>(heads) * std::pow(ceil_div(seq, stride), 2);
        const auto taken = static_cast<double>(prefill.workspace_bytes(limits));
        INFO("stride " << stride << ", " << heads << " heads, " << seq << " tokens: " << taken);
        // Of scores in f16; in f32 where the cells are the largest, or few.
        const bool f16 = stride <= 8 && seq >= PrefillConfig::kDenseBelow;
        if (stride <= 8 || seq >= 16384) CHECK(taken * 16 <= cells * (f16 ? 2 : 4));
      }
  }
}
