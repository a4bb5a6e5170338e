// Every combination of dtype, head dimension, block, form and causality, at lengths that cut the
// last blocks off: all of them on a GPU, elsewhere random ones.
#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::test;

namespace {

constexpr std::pair<int64_t, int64_t> kLengths[] = {
    {1, 300}, {63, 100}, {100, 63}, {130, 130}, {300, 257}};

std::vector<AttentionConfig> grid() {
  using enum BlockForm;
  std::vector<AttentionConfig> all;
  for (DType dtype : {F16, BF16})
    for (int64_t dim : {32, 64, 80, 96, 128, 256})
      for (int64_t block : {16, 32, 64, 128})
        for (BlockForm form : {MaskBool, Lists, Dense})
          for (bool causal : {false, true})
            all.push_back({.dtype = dtype,
                           .head_dim = dim,
                           .block = block,
                           .causal = causal,
                           .form = form,
                           .lse = true});
  return all;
}

// Three query heads share a key head; of every head one row of blocks selects nothing.
void check_lengths(const AttentionConfig& config, std::mt19937_64& random) {
  for (const auto& [seq, seq_kv] : kLengths) {
    AttentionCase one(config, {.heads = 6, .heads_kv = 2, .seq = seq, .seq_kv = seq_kv});
    one.randomize(random(), 0.6);
    Array chosen = one.mask;
    const int64_t rows = one.grid().rows(), columns = one.grid().cols();
    for (int64_t head = 0; head < one.sizes.heads; ++head) {
      const int64_t row =
          head * rows + static_cast<int64_t>(random() % static_cast<uint64_t>(rows));
      for (int64_t column = 0; column < columns; ++column) chosen.set(row * columns + column, 0);
    }
    one.use(chosen);
    one.check(fast_device());
  }
}

// Compiled beforehand in several threads: on a GPU most of the time is the driver's compiler's.
void compile_all(const std::vector<AttentionConfig>& configs) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::clamp(std::thread::hardware_concurrency(), 1U, 16U); ++t)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < configs.size();) {
        try {
          block_sparse_attention(fast_device(), configs[i]);
        } catch (const std::exception&) {  // seen again by its check
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("every dtype, head dimension, block and form at ragged lengths", "[attention][grid]") {
  using Clock = std::chrono::steady_clock;
  std::mt19937_64 random(run_seed());
  std::vector<AttentionConfig> all = grid();
  const bool everything = !kiln::testing::uses_host_memory(fast_device());
  if (everything)
    compile_all(all);
  else
    std::shuffle(all.begin(), all.end(), random);
  const auto end = Clock::now() + std::chrono::seconds(6);
  size_t ran = 0;
  for (; ran < all.size() && (everything || ran < 3 || Clock::now() < end); ++ran)
    check_lengths(all[ran], random);
  WARN(ran << " of " << all.size() << " combinations ran");
}
