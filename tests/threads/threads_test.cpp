// Many threads compile and launch at once, from the first use in the process on; all results are
// checked. Preset tsan builds it with ThreadSanitizer.
#include <algorithm>
#include <barrier>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "dsl/dsl.h"
#include "kernels/kernels.h"
#include "runtime/emulator_device.h"
#include "runtime/runtime.h"

using namespace kiln;

namespace {

constexpr int kThreads = 8;
using Random = std::mt19937_64;

Array random_integers(Shape shape, Random& random) {
  Array array(F32, std::move(shape));
  for (float& value : array.span<float>()) value = static_cast<float>(random() % 9) - 4;
  return array;
}
int64_t random_extent(Random& random) {
  return static_cast<int64_t>(1 + random() % 70);
}

// y[i, j] = factor * x[i, j] + the sum of row i.
Kernel add_row_sum(int64_t factor) {
  return trace("add_row_sum", [&] {
    Dim rows = dim("rows");
    Tensor X = input("x", F32, {rows, 32}), Y = output("y", F32, {rows, 32});
    auto first = launch({ceildiv(rows, 8)})[0] * 8;
    Tile x = alloc_fragment({8, 32}, F32), sum = alloc_fragment({8}, F32);
    copy(X(span(first, 8), all), x);
    reduce_sum(x, sum, 1);
    for (auto [i, j] : parallel(8, 32)) x(i, j) = factor * x(i, j) + sum(i);
    copy(x, Y(span(first, 8), all));
  });
}

bool row_sums_right(Device& device, int64_t factor, Random& random) {
  const int64_t rows = random_extent(random);
  Array x = random_integers({rows, 32}, random), y(F32, {rows, 32});
  run(device, add_row_sum(factor), Arguments().tensor("x", x).tensor("y", y));
  const auto in = x.span<float>(), out = y.span<float>();
  for (int64_t i = 0; i < rows; ++i) {
    const float sum = std::accumulate(in.begin() + i * 32, in.begin() + (i + 1) * 32, 0.0f);
    for (int64_t j = i * 32; j < (i + 1) * 32; ++j)
      if (out[j] != static_cast<float>(factor) * in[j] + sum) return false;
  }
  return true;
}

bool product_right(Device& device, int64_t tile, Random& random) {
  const int64_t m = random_extent(random), n = random_extent(random), k = random_extent(random);
  Array a = random_integers({m, k}, random), b = random_integers({k, n}, random), c(F32, {m, n});
  run(device, matmul_kernel({.dtype = F32, .block_m = tile, .block_n = 32, .block_k = 16}),
      Arguments().tensor("a", a).tensor("b", b).tensor("c", c));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t l = 0; l < k; ++l)
        sum += a.span<float>()[i * k + l] * b.span<float>()[l * n + j];
      if (c.span<float>()[i * n + j] != sum) return false;
    }
  return true;
}

bool softmax_right(Device& device, int64_t tile, Random& random) {
  const int64_t rows = random_extent(random), cols = random_extent(random);
  Array x = random_integers({rows, cols}, random), y(F32, {rows, cols});
  run(device, row_softmax_kernel({F32, 4, tile}), Arguments().tensor("x", x).tensor("y", y));
  std::vector<double> expected = x.values();
  for (auto row = expected.begin(); row != expected.end(); row += cols) {
    std::transform(row, row + cols, row, [](double value) { return std::exp(value); });
    const double sum = std::accumulate(row, row + cols, 0.0);
    std::transform(row, row + cols, row, [&](double value) { return value / sum; });
  }
  return compare(y.values(), expected, cols, accuracy_rule(F32)).ok();
}

// One call of a handle, with lengths and a mask of its own.
bool attention_right(const BlockSparseAttention& attend, Random& random) {
  const AttentionConfig& config = attend.config();
  const int64_t seq = random_extent(random), seq_kv = seq + random_extent(random);
  Array q = random_integers({1, 2, seq, config.head_dim}, random);
  Array k = random_integers({1, 1, seq_kv, config.head_dim}, random);
  Array v = random_integers({1, 1, seq_kv, config.dim_v()}, random);
  Array o(F32, {1, 2, seq, config.dim_v()});
  const BlockGrid grid = {seq, seq_kv, config.block, config.causal};
  const Array mask = random_mask(1, 2, grid, 0.6, random());
  const AttentionArgs args = {
      .q = q.view(), .k = k.view(), .v = v.view(), .o = o.view(), .mask = mask.view()};
  attend(args);
  const AttentionReference reference = attention_reference(config, args, all_rows(args));
  return compare(o.values(), reference.o, config.dim_v(), accuracy_rule(F32)).ok();
}

AttentionConfig attention_config(int64_t block) {
  return {.dtype = F32, .head_dim = 16, .head_dim_v = 32, .block = {block, 16}, .causal = true};
}

using Job = std::function<bool(Device&, Random&)>;

// Each compiles a kernel of its own and runs it: 20 kernels.
std::vector<Job> twenty_jobs() {
  std::vector<Job> jobs;
  for (int64_t i = 0; i < 5; ++i) {
    jobs.push_back([=](Device& d, Random& random) { return row_sums_right(d, i + 2, random); });
    jobs.push_back(
        [=](Device& d, Random& random) { return product_right(d, 8 * (i + 1), random); });
    jobs.push_back(
        [=](Device& d, Random& random) { return softmax_right(d, 8 * (i + 1), random); });
    jobs.push_back([=](Device& d, Random& random) {
      return attention_right(block_sparse_attention(d, attention_config(16 * (i + 1))), random);
    });
  }
  return jobs;
}

// `count` threads do all jobs at once, each in an order of its own. Prints the seed; the number of
// wrong results and exceptions.
int failures(const std::vector<Job>& jobs, Device& device, int count) {
  const uint64_t seed = std::random_device{}();
  UNSCOPED_INFO("seed " << seed);
  std::barrier start(count);
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t)
    threads.emplace_back([&, t] {
      Random random(seed + static_cast<uint64_t>(t));
      std::vector<Job> mine = jobs;
      std::shuffle(mine.begin(), mine.end(), random);
      start.arrive_and_wait();
      for (const Job& job : mine) try {
          if (!job(device, random)) ++failed;
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s\n", error.what());
          ++failed;
        }
    });
  for (std::thread& thread : threads) thread.join();
  return failed;
}

}  // namespace

TEST_CASE("threads: 8 compile and launch 20 kernels, each compiled once") {
  forget_compiled();
  const int64_t before = compile_stats().compilations + compile_stats().disk_loads;
  CHECK(failures(twenty_jobs(), device("host"), kThreads) == 0);
  CHECK(compile_stats().compilations + compile_stats().disk_loads - before == 20);
}

TEST_CASE("threads: one handle, called by 8") {
  const auto attend = block_sparse_attention(device("host"), attention_config(64));
  const Job call = [&](Device&, Random& random) { return attention_right(attend, random); };
  CHECK(failures(std::vector<Job>(10, call), device("host"), kThreads) == 0);
}

TEST_CASE("threads: the emulator, compiled for and launched by 4") {
  std::vector<Job> jobs;
  for (int64_t i = 0; i < 2; ++i)
    jobs.push_back([=](Device& d, Random& random) { return row_sums_right(d, i + 2, random); });
  CHECK(failures(jobs, emulator_device("sm_80"), 4) == 0);
}
