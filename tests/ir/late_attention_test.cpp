// The last stage of block-sparse attention with tiles of 8 x 8: streams of every length up to twice
// around the ring, in every mode and order of agents, against float64.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "tests/ir/late_modes.h"
#include "tests/ir/late_small.h"
#include "tests/ir/run_text.h"

using namespace kiln;
using namespace kiln::test;

namespace {

constexpr int64_t kEdge = 8;  // rows of a block, and the head dim
constexpr int64_t kTail = 3;  // rows of NaN behind each head
// Weights and outputs are rounded to f16; values are at most 2.
constexpr double kTolerance = 4e-3;

int64_t below(std::mt19937_64& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

// Which blocks every tile of queries attends to.
struct Lists {
  int64_t batch = 1, heads = 1, tiles = 0, seq = 0;
  std::vector<std::vector<int64_t>> blocks;  // of [batch, heads, tiles], each ascending

  int64_t wide() const { return seq + kTail; }
  size_t at(int64_t head, int64_t row) const {  // an element of [batch, heads, wide, kEdge]
    return static_cast<size_t>((head * wide() + row) * kEdge);
  }
  const std::vector<int64_t>& of(int64_t head, int64_t tile) const {
    return blocks[static_cast<size_t>(head * tiles + tile)];
  }
};

// Lists that are so many items of the ring's stream: an empty one is an item too.
Lists random_lists(int64_t items, std::mt19937_64& random) {
  std::vector<Lists> shapes;
  for (int64_t batch : {1, 2})
    for (int64_t heads : {1, 2})
      for (int64_t tiles = 1; tiles <= 5; ++tiles) {
        const int64_t least = batch * heads * tiles, most = least * (tiles + 1) / 2;
        if (least <= items && items <= most) shapes.push_back({batch, heads, tiles, 0, {}});
      }
  if (shapes.empty()) return {};
  Lists made = shapes[static_cast<size_t>(below(random, static_cast<int64_t>(shapes.size())))];
  made.seq = made.tiles * kEdge - below(random, kEdge);
  const int64_t all = made.batch * made.heads * made.tiles;
  std::vector<int64_t> lengths(static_cast<size_t>(all), 1);
  for (int64_t left = items - all; left > 0;) {
    const int64_t list = below(random, all);
    int64_t& length = lengths[static_cast<size_t>(list)];
    if (length > list % made.tiles) continue;  // it has the whole causal triangle
    ++length;
    --left;
  }
  for (int64_t list = 0; list < all; ++list) {
    int64_t length = lengths[static_cast<size_t>(list)];
    if (length == 1) length = below(random, 2);
    std::vector<int64_t> blocks;
    for (int64_t block = 0; block <= list % made.tiles; ++block) blocks.push_back(block);
    std::shuffle(blocks.begin(), blocks.end(), random);
    blocks.resize(static_cast<size_t>(length));
    std::sort(blocks.begin(), blocks.end());
    made.blocks.push_back(blocks);
  }
  return made;
}

Numbers random_values(const Lists& lists, std::mt19937_64& random) {
  Numbers values(lists.at(lists.batch * lists.heads, 0), NAN);
  for (int64_t head = 0; head < lists.batch * lists.heads; ++head)
    for (size_t i = lists.at(head, 0); i < lists.at(head, lists.seq); ++i)
      values[i] = static_cast<double>(below(random, 513) - 256) / 128;  // exact in f16
  return values;
}

// NaN where no output belongs.
Numbers reference(const Lists& lists, double scale, const Numbers& q, const Numbers& k,
                  const Numbers& v) {
  Numbers o(q.size(), NAN);
  for (int64_t head = 0; head < lists.batch * lists.heads; ++head)
    for (int64_t row = 0; row < lists.seq; ++row) {
      double sum = 0, sums[kEdge] = {};
      for (int64_t block : lists.of(head, row / kEdge))
        for (int64_t j = block * kEdge; j < std::min((block + 1) * kEdge, row + 1); ++j) {
          double score = 0;
          for (size_t d = 0; d < kEdge; ++d)
            score += q[lists.at(head, row) + d] * k[lists.at(head, j) + d];
          const double weight = std::exp(scale * score);
          sum += weight;
          for (size_t d = 0; d < kEdge; ++d) sums[d] += weight * v[lists.at(head, j) + d];
        }
      for (size_t d = 0; d < kEdge; ++d) o[lists.at(head, row) + d] = sum > 0 ? sums[d] / sum : 0;
    }
  return o;
}

// Elements past the lists' ends are no blocks.
void bind_lists(Run& run, const Lists& lists) {
  const int64_t entries = lists.tiles + 1;
  Numbers counts, indices;
  for (const std::vector<int64_t>& blocks : lists.blocks) {
    counts.push_back(static_cast<double>(blocks.size()));
    indices.insert(indices.end(), blocks.begin(), blocks.end());
    indices.resize(counts.size() * static_cast<size_t>(entries), 1 << 20);
  }
  run.dim("batch", lists.batch).dim("heads", lists.heads).dim("seq", lists.seq);
  run.dim("tiles", lists.tiles).dim("entries", entries);
  run.tensor("counts", I32, {lists.batch, lists.heads, lists.tiles}, counts);
  run.tensor("indices", I32, {lists.batch, lists.heads, lists.tiles, entries}, indices);
}

// A tensor of `seq` rows a head with others between.
void bind_spaced(Run& run, const std::string& name, const Lists& lists, const Numbers& values) {
  run.tensor(name, F16, {lists.batch, lists.heads, lists.wide(), kEdge}, values);
  run.bindings.tensors[name].shape[2] = lists.seq;
}
Numbers spaced_values(Run& run, const std::string& name, const Lists& lists) {
  run.bindings.tensors[name].shape[2] = lists.wide();
  return run.values(name);
}

// The first element that differs by more; empty if none.
std::string difference(const Numbers& actual, const Numbers& expected, double tolerance) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], b = expected[i];
    const bool same =
        std::isnan(b) ? std::isnan(a) : std::fabs(a - b) <= tolerance * std::max(1.0, std::fabs(b));
    if (!same) return fmt::format("element {}: {} and {}", i, a, b);
  }
  return "";
}

}  // namespace

TEST_CASE("small late files: block-sparse attention", "[interp][late]") {
  const Kernel kernel = small_late_kernel(KILN_TESTS_DIR, "block_sparse_d128.tile",
                                          {{0, 0}, {1, 1}, {4, 4}, {128, kEdge}});
  Run run(print(kernel));
  std::mt19937_64 random(5);
  int empty = 0, of_one = 0, ragged = 0, guessed = 0;
  for (int64_t items = 0; items <= 2 * slots_of(kernel) + 1; ++items)
    for (int64_t ctas : {1, 2, 3}) {
      const Lists lists = random_lists(items, random);
      // The larger one lets a maximum that stays overflow the guess.
      const double scale = ctas == 2 ? 2.0 : 0.25;
      const Numbers q = random_values(lists, random), k = random_values(lists, random),
                    v = random_values(lists, random);
      bind_lists(run, lists);
      bind_spaced(run, "q", lists, q);
      bind_spaced(run, "k", lists, k);
      bind_spaced(run, "v", lists, v);
      run.dim("ctas", ctas).param("scale", Scalar::of_float(F32, scale));
      for (const std::vector<int64_t>& blocks : lists.blocks) {
        empty += blocks.empty();
        of_one += blocks.size() == 1;
      }
      ragged += lists.seq % kEdge != 0;
      const Numbers expected = reference(lists, scale, q, k, v);
      Numbers eager;
      for (const InterpOptions& options : all_modes(50)) {
        INFO(items << " items of " << lists.batch << " x " << lists.heads << " x " << lists.tiles
                   << " tiles, seq " << lists.seq << ", ctas " << ctas << ", "
                   << described(options));
        bind_spaced(run, "o", lists, Numbers(q.size(), NAN));
        run(options);
        const Numbers actual = spaced_values(run, "o", lists);
        CHECK(difference(actual, expected, kTolerance) == "");
        if (eager.empty()) eager = actual;
        // Only a guess makes a difference to what was computed eagerly.
        const bool guesses = options.async != InterpOptions::Async::Eager;
        CHECK(difference(actual, eager, guesses ? kTolerance : 0) == "");
        guessed += difference(actual, eager, 0) != "";
      }
    }
  CHECK(empty > 10);
  CHECK(of_one > 10);
  CHECK(ragged > 20);
  CHECK(guessed > 100);
}
