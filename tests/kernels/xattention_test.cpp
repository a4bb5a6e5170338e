// xattn_estimate: sums against float64, and the choice against plain loops over the device's sums.
#include "kernels/xattention/xattention.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>

#include "ir/error.h"
#include "kernels/compare.h"
#include "kernels/softmax_block_sum/softmax_block_sum.h"
#include "tests/kernels/attention_case.h"
#include "tests/kernels/cell_case.h"
#include "tests/kernels/entry_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

// Of scores, whose many products are added in f32, an exponential.
constexpr AccuracyRule kSums{.row = 5e-5, .element = 5e-5};

struct EstimateCase {
  EstimateConfig config;
  CellCase cells;
  Array sums, mask, counts, indices;
  std::optional<Array> thresholds;
  std::optional<float> threshold;
  std::optional<int64_t> top_k;
  float norm = 1;

  EstimateCase(const EstimateConfig& given, const std::vector<SequenceSizes>& sequences,
               int64_t heads, int64_t heads_kv, std::mt19937_64& random)
      : config(validated(given)), cells(config.cells(), sequences, heads, heads_kv, random) {
    const int64_t batch = cells.batch(), rows = blocks(cells.seq()), cols = blocks(cells.seq_kv());
    const int64_t out = config.select.reduce == HeadReduce::None ? heads : heads_kv;
    sums = Array(F32, {batch, heads, rows, cols});
    mask = Array(Bool, {batch, out, rows, cols});
    counts = Array(I32, {batch, out, rows});
    indices = Array(I32, {batch, out, rows, cols});
  }
  int64_t blocks(int64_t tokens) const { return (tokens + config.block - 1) / config.block; }

  EstimateArgs args() {
    EstimateArgs args{cells.args(), {mask.view()}, sums.view()};
    if (config.select.list) {
      args.counts = counts.view();
      args.indices = indices.view();
    }
    if (thresholds) args.thresholds = thresholds->view();
    args.threshold = threshold;
    args.top_k = top_k;
    args.norm = norm;
    return args;
  }

  void run(Device& device) {
    for (Array* array : {&sums, &counts, &indices}) fill(*array, 77);
    fill(mask, 1);
    const XattnEstimate estimate = xattn_estimate(device, config);
    kiln::testing::run_on(device, *estimate.executable(), estimate.bind(args()));
  }
  void check(Device& device) {
    run(device);
    INFO(fmt::format("{} block {} on {}", cells.describe(), config.block, device.name()));
    const Comparison result = compare(sums.values(), estimate_sums(config, args()),
                                      std::max<int64_t>(sums.shape().back(), 1), kSums);
    INFO("sums: " << result.str());
    CHECK(result.ok());
    const ChoiceResults expected = estimate_choice(config, args(), sums.values());
    CHECK(mask.values() == expected.mask);
    check_against_oracle();
    if (!config.select.list) return;
    CHECK(counts.values() == expected.counts);
    CHECK(indices.values() == expected.indices);
  }
  // The choice from float64's own sums is the same, but where scores are too near to tell: there as
  // much mass, and no block more that it does not take, a block a row and 2 % in all apart.
  void check_against_oracle() {
    const HeadReduce reduce = config.select.reduce;
    if (config.select.by != SelectBy::Threshold || reduce != HeadReduce::None ||
        config.select.ref_compat || config.select.per_head)
      return;
    const std::vector<double> oracle = estimate_sums(config, args());
    const std::vector<double> wanted = estimate_choice(config, args(), oracle).mask;
    const auto cols = static_cast<size_t>(std::max<int64_t>(mask.shape().back(), 1));
    double chosen_in_all = 0, wanted_in_all = 0;
    for (size_t row = 0; row < oracle.size(); row += cols) {
      double total = 0, covered = 0, least = 1e30, here = 0, there = 0;
      for (size_t c = row; c < row + cols; ++c) {
        total += oracle[c];
        here += mask.get(static_cast<int64_t>(c));
        there += wanted[c];
        if (mask.get(static_cast<int64_t>(c)) == 0) continue;
        covered += oracle[c];
        if (wanted[c] == 0) least = std::min(least, oracle[c]);
      }
      const double asked = threshold.value_or(kDefaultThreshold) * total;
      if (total > 0) CHECK(covered >= asked - 1e-3 * total);
      if (least < 1e30) CHECK(covered - least < asked + 1e-3 * total);
      CHECK(std::abs(here - there) <= 1);
      chosen_in_all += here;
      wanted_in_all += there;
    }
    CHECK(std::abs(chosen_in_all - wanted_in_all) <= 0.02 * wanted_in_all);
  }
  bool is_chosen(int64_t b, int64_t h, int64_t row, int64_t col) const {
    const Shape& s = mask.shape();
    return mask.get(((b * s[1] + h) * s[2] + row) * s[3] + col) != 0;
  }
};

}  // namespace

TEST_CASE("xattn_estimate: any batch, packed or not, with history", "[xattention]") {
  std::mt19937_64 random(run_seed());
  const auto of = [&](std::initializer_list<int64_t> list) {
    return *(list.begin() + random() % list.size());
  };
  for (const std::string& name : devices_and_emulator(false))
    for (int round = 0; round < (name == "host" ? 14 : 2); ++round) {
      EstimateConfig config;
      config.dtype = random() % 2 ? F16 : BF16;
      config.head_dim = of({16, 32, 64});
      config.stride = of({4, 8, 16});
      config.block = of({64, 128, 256});
      config.causal = random() % 4 != 0;
      config.varlen = random() % 2;
      config.lengths = random() % 3 == 0;
      if (random() % 3 == 0) config.page = of({16, 64, 256});
      config.lengths = config.lengths || config.page > 0;
      config.q_start = random() % 2;
      config.select.per_head = random() % 3 == 0;
      config.select.list = random() % 3 != 0;
      config.select.reduce = static_cast<HeadReduce>(random() % 4);
      config.select.ref_compat = random() % 4 == 0;
      if (random() % 4 == 0 && !config.select.ref_compat) config.select.by = SelectBy::TopK;
      const int64_t heads_kv = of({1, 2}), heads = heads_kv * of({1, 3});
      const int64_t longest = name == "host" ? 800 : 200;
      EstimateCase c(config, random_sequences(config.cells(), of({1, 2, 3}), longest, random),
                     heads, heads_kv, random);
      const std::array amounts = {.9, .5, 1.0, .99};
      const bool by_mass = config.select.by == SelectBy::Threshold;
      if (config.select.per_head) {
        const bool means = config.select.reduce == HeadReduce::Mean;
        c.thresholds.emplace(by_mass ? F32 : I32, Shape{means ? heads_kv : heads});
        for (int64_t i = 0; i < c.thresholds->size(); ++i)
          c.thresholds->set(i, by_mass ? amounts[random() % 4] : 2 + random() % 4);
      } else if (by_mass) {
        c.threshold = static_cast<float>(amounts[random() % 4]);
      } else {
        c.top_k = 2 + static_cast<int64_t>(random() % 4);
      }
      c.norm = std::array{0.5f, 1.f, 2.f}[random() % 3];
      c.check(device(name));
    }
}

TEST_CASE("xattn_estimate: lengths at every edge", "[xattention]") {
  std::mt19937_64 random(run_seed());
  const std::vector<int64_t> edges = {0,  1,  15, 16,  17,  31,  32,  33,  47,
                                      63, 64, 65, 127, 128, 129, 130, 200, 1000};
  std::vector<SequenceSizes> sequences;
  for (size_t i = 0; i < edges.size(); ++i) {
    sequences.push_back({edges[i], edges[i]});
    sequences.push_back({edges[i], edges[(i * 7 + 3) % edges.size()]});
    sequences.push_back({edges[random() % edges.size()], edges[i]});
  }
  for (bool causal : {true, false}) {
    EstimateCase c({.head_dim = 16, .causal = causal, .varlen = true}, sequences, 1, 1, random);
    c.check(fast_device());
  }
}

TEST_CASE("xattn_estimate: sixteen ways to force and keep", "[xattention]") {
  std::mt19937_64 random(run_seed());
  for (int flags = 0; flags < 16; ++flags) {
    EstimateConfig config{.head_dim = 16, .stride = 16, .block = 64};
    config.select.force_sink = flags & 1;
    config.select.force_diag = flags & 2;
    config.select.keep_sink = flags & 4;
    config.select.keep_recent = flags & 8;
    EstimateCase c(config, {{300, 500}}, 2, 1, random);
    c.threshold = 0.3f;
    c.check(fast_device());
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t row = 0; row < 5; ++row) {
        const int64_t first = 200 + row * 64, last = std::min<int64_t>(first + 63, 499);
        if (flags & 5) CHECK(c.is_chosen(0, h, row, 0));
        if (flags & 10) CHECK(c.is_chosen(0, h, row, first / 64));
        if (flags & 10) CHECK(c.is_chosen(0, h, row, last / 64));
      }
  }
}

TEST_CASE("xattn_estimate: a key parallel to the queries, long ago, is found", "[xattention]") {
  // Block 5 of the history holds it, in chunks of queries too: for every head of every group.
  std::mt19937_64 random(run_seed());
  for (const std::string& name : devices_and_emulator(false))
    for (int64_t stride : {4, 8, 16}) {
      if (name != "host" && stride != 16) continue;
      EstimateConfig config{.head_dim = 32, .stride = stride, .varlen = true, .q_start = true};
      config.select.list = false;
      const bool fast = name == "host";
      const std::vector<SequenceSizes> chunks = {{512, 1512, 1000}, {100, 1100, 1000}};
      EstimateCase c(config, fast ? chunks : std::vector{chunks[1]}, 8, 2, random);
      for (int64_t i = 0; i < c.cells.q.size(); ++i) c.cells.q.set(i, c.cells.q.get(i) * 0.1);
      for (int64_t i = 0; i < c.cells.k.size(); ++i) c.cells.k.set(i, c.cells.k.get(i) * 0.1);
      for (int64_t b = 0; b < c.cells.batch(); ++b)
        for (int64_t d = 0; d < 32; ++d) {
          const double direction = d % 2 ? 1 : -1;
          for (int64_t h = 0; h < 8; ++h)
            for (int64_t i = 0; i < c.cells.sequences[b].queries; ++i)
              c.cells.q.set(c.cells.at_q(b, h, i, d), direction);
          for (int64_t h = 0; h < 2; ++h)
            c.cells.k.set(c.cells.at_k(b, h, 5 * 128 + 77, d), 40 * direction);
        }
      c.check(device(name));
      for (int64_t b = 0; b < c.cells.batch(); ++b)
        for (int64_t h = 0; h < 8; ++h)
          for (int64_t row = 0; row * 128 < c.cells.sequences[b].queries; ++row) {
            CHECK(c.is_chosen(b, h, row, 5));
            // Everything else together has a hundredth of its mass.
            const int64_t cells = std::min<int64_t>(
                128 / stride, (c.cells.sequences[b].queries - row * 128) / stride);
            const Shape& shape = c.sums.shape();
            CHECK(c.sums.get(((b * 8 + h) * shape[2] + row) * shape[3] + 5) > 0.9 * cells);
          }
    }
}

TEST_CASE("xattn_estimate: chunks of queries choose what all at once do", "[xattention]") {
  std::mt19937_64 random(run_seed());
  const EstimateConfig config{.head_dim = 32};
  EstimateCase whole(config, {{700, 1212}}, 4, 2, random);  // whose queries start at block 4
  whole.check(fast_device());
  int64_t done = 0;
  for (int64_t chunk : {128, 384, 188}) {
    EstimateConfig part_config = config;
    part_config.q_start = true;
    EstimateCase part(part_config, {{chunk, 1212, 512 + done}}, 4, 2, random);
    part.cells.k = whole.cells.k;
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t i = 0; i < chunk; ++i)
        for (int64_t d = 0; d < 32; ++d)
          part.cells.q.set(part.cells.at_q(0, h, i, d),
                           whole.cells.q.get(whole.cells.at_q(0, h, done + i, d)));
    part.check(fast_device());
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t row = 0; row * 128 < chunk; ++row)
        for (int64_t col = 0; col < 10; ++col) {
          const int64_t row_of_all = done / 128 + row;
          CHECK(part.is_chosen(0, h, row, col) == whole.is_chosen(0, h, row_of_all, col));
          // Bit by bit: a row is the same work wherever it is.
          CHECK(part.sums.get((h * part.sums.shape()[2] + row) * 10 + col) ==
                Approx(whole.sums.get((h * 6 + row_of_all) * 10 + col)).epsilon(1e-5).margin(1e-7));
        }
    done += chunk;
  }
  // The chunk of the configuration changes nothing.
  EstimateCase small = whole;
  small.config.chunk = 2048;
  small.run(fast_device());
  CHECK(small.mask.values() == whole.mask.values());
}

TEST_CASE("xattn_estimate: a batch is its sequences; later keys do not matter", "[xattention]") {
  std::mt19937_64 random(run_seed());
  const std::vector<SequenceSizes> sequences = {
      {300, 300, 0}, {129, 500, 129}, {0, 7, 0}, {40, 400, 300}};
  EstimateConfig config{.head_dim = 32, .stride = 4, .varlen = true, .q_start = true};
  EstimateCase batch(config, sequences, 4, 2, random);
  batch.check(fast_device());
  for (int64_t b = 0; b < batch.cells.batch(); ++b) {
    const SequenceSizes& one = sequences[b];
    EstimateCase solo(config, {one}, 4, 2, random);
    for (int64_t i = 0; i < one.queries; ++i)
      for (int64_t h = 0; h < 4; ++h)
        for (int64_t d = 0; d < 32; ++d)
          solo.cells.q.set(solo.cells.at_q(0, h, i, d),
                           batch.cells.q.get(batch.cells.at_q(b, h, i, d)));
    // No query sees the keys behind the last of them.
    for (int64_t j = 0; j < one.keys; ++j)
      for (int64_t h = 0; h < 2; ++h)
        for (int64_t d = 0; d < 32; ++d)
          solo.cells.k.set(
              solo.cells.at_k(0, h, j, d),
              j < one.start + one.queries ? batch.cells.k.get(batch.cells.at_k(b, h, j, d)) : NAN);
    solo.check(fast_device());
    const int64_t cols = solo.mask.shape()[3];
    for (int64_t h = 0; h < 4; ++h)
      for (int64_t row = 0; row * 128 < one.queries; ++row)
        for (int64_t col = 0; col < cols; ++col)
          CHECK(solo.is_chosen(0, h, row, col) == batch.is_chosen(b, h, row, col));
  }
}

TEST_CASE("xattn_estimate: threshold 1 keeps every visible block", "[xattention]") {
  std::mt19937_64 random(run_seed());
  EstimateCase c({.head_dim = 32}, {{500, 900}}, 2, 2, random);
  c.threshold = 1.f;
  for (const std::string& name : devices_and_emulator(false)) {
    c.check(device(name));
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t row = 0; row < 4; ++row)
        for (int64_t col = 0; col < 8; ++col)
          CHECK(c.is_chosen(0, h, row, col) ==
                (col <= (400 + std::min<int64_t>(row * 128 + 127, 499)) / 128));
  }
}

TEST_CASE("xattn_estimate: the parts one after the other give the same", "[xattention]") {
  // What antidiag_scores, softmax_block_sum and select_blocks make of it, through memory.
  std::mt19937_64 random(run_seed());
  EstimateCase c({.head_dim = 64, .stride = 8}, {{512, 1024}}, 2, 1, random);
  c.check(fast_device());
  Array scores(F32, {1, 2, 64, 128}), sums(F32, {1, 2, 4, 8}), mask(Bool, {1, 2, 4, 8});
  Array first(I32, {1}, std::vector<double>{64}), real_q(I32, {1}, std::vector<double>{128});
  Array real_k(I32, {1}, std::vector<double>{128});
  Device& device = fast_device();
  if (!kiln::testing::uses_host_memory(device)) return;
  AntidiagConfig cells = c.config.cells();
  antidiag_scores(device, cells)({c.cells.args(), scores.view()});
  softmax_block_sum(device, {.dtype = F32, .block = 16})({scores.view(), first.view(),
                                                          real_q.view(), real_k.view(), sums.view(),
                                                          scale_of(c.config, c.args())});
  CHECK(compare(sums.values(), c.sums.values(), 8, kSums).ok());
  Array first_block(I32, {1}, std::vector<double>{4}), blocks(I32, {1}, std::vector<double>{8});
  select_blocks(device,
                {.list = false})({{mask.view()}, c.sums.view(), first_block.view(), blocks.view()});
  CHECK(mask.values() == c.mask.values());
}

TEST_CASE("xattn_estimate: by name", "[xattention]") {
  std::mt19937_64 random(run_seed());
  EstimateCase c({.dtype = BF16, .head_dim = 32, .stride = 16, .varlen = true},
                 {{100, 300}, {64, 64}}, 2, 1, random);
  EntryRun run{
      "xattn_estimate",
      c.cells.settings(),
      c.cells.arguments(),
      {{"sums", &c.sums}, {"mask", &c.mask}, {"counts", &c.counts}, {"indices", &c.indices}}};
  run.arguments.param("threshold", 0.75);
  check_entry(device("host"), run, {{"sums", kSums}});
}

TEST_CASE("xattn_estimate: mistakes are sentences", "[xattention]") {
  CHECK_THROWS_WITH(xattn_estimate_kernel({.stride = 12}),
                    Contains("stride: expected 4, 8 or 16, which divide block 128, got 12"));
  CHECK_THROWS_WITH(xattn_estimate_kernel({.stride = 2}),
                    Contains("stride: expected 4, 8 or 16, got 2"));
  CHECK_THROWS_WITH(xattn_estimate_kernel({.block = 100}),
                    Contains("block: expected 64, 128 or 256, got 100"));
  for (int64_t chunk : {1024, 262144})
    CHECK_THROWS_WITH(xattn_estimate_kernel({.chunk = chunk}),
                      Contains(fmt::format("chunk: expected 2048 to 131072, got {}", chunk)));
  CHECK_THROWS_WITH(xattn_estimate_kernel({.select_mode = SelectMode::Slash}),
                    Contains("select_mode: expected inverse, got slash"));

  std::mt19937_64 random(1);
  EstimateCase c({.head_dim = 16}, {{200, 300}}, 6, 2, random);
  const XattnEstimate estimate = xattn_estimate(device("host"), c.config);
  EstimateArgs args = c.args();
  estimate(args);
  for (float wrong : {0.f, 1.1f, NAN}) {
    args.threshold = wrong;
    CHECK_THROWS_WITH(estimate(args), Contains("threshold: expected above 0, at most 1, got"));
  }
  args = c.args();
  for (float wrong : {0.f, -1.f, NAN, INFINITY}) {
    args.norm = wrong;
    CHECK_THROWS_WITH(estimate(args), Contains("norm: expected a finite number above 0, got"));
  }
  args = c.args();
  args.sums.shape[3] = 2;
  CHECK_THROWS_WITH(estimate(args), Contains("sums: expected shape [1, 6, 2, 3], got"));
  args = c.args();
  args.cu_seqlens_q = args.q;
  CHECK_THROWS_WITH(estimate(args), Contains("cu_seqlens_q: given, but the kernel was compiled "
                                             "without varlen"));
  args = c.args();
  args.thresholds = args.counts;
  CHECK_THROWS_WITH(estimate(args), Contains("thresholds: given, but the kernel was compiled"));

  EstimateConfig per_head = c.config;
  per_head.select.per_head = true;
  Array five(F32, {5});
  args.thresholds = five.view();
  CHECK_THROWS_WITH(xattn_estimate(device("host"), per_head)(args),
                    Contains("thresholds: expected shape [6], got [5]"));
}
