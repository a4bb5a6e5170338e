// One product kernel, compiled for every tile: exact on small integers, over several blocks an axis
// whose last ones are cut off. On a GPU every tile of the grid, elsewhere random ones.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <random>
#include <thread>

#include "dsl/dsl.h"
#include "passes/gpu_target.h"
#include "runtime/device.h"
#include "tests/codegen/harness.h"
#include "tests/support/on_device.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr DType kInputs[] = {F16, BF16, E4M3, E5M2, I8, U8, F32, F64};

struct Tiles {
  DType dtype;
  int64_t m, n, k;
  bool transpose_a, transpose_b, clear;

  DType out() const { return is_int(dtype) ? I32 : dtype == F64 ? F64 : F32; }
  int64_t shared_bytes() const { return (m + n) * k * static_cast<int64_t>(size_of(dtype)); }
  std::string text() const {
    return fmt::format("{} {}x{}x{}{}{}{}", name(dtype), m, n, k, transpose_a ? " a^T" : "",
                       transpose_b ? " b^T" : "", clear ? " clear" : "");
  }
};

// c = a · b + 3; with `clear` only the last step's part of the product is left.
Kernel product(const Tiles& t) {
  return trace("product", {}, [&] {
    Dim m = dim("m"), n = dim("n"), k = dim("k");
    Tensor a = t.transpose_a ? input("a", t.dtype, {k, m}) : input("a", t.dtype, {m, k});
    Tensor b = t.transpose_b ? input("b", t.dtype, {n, k}) : input("b", t.dtype, {k, n});
    Tensor c = output("c", t.out(), {m, n});
    auto [column, row, _] = launch({ceildiv(n, t.n), ceildiv(m, t.m)});
    Span rows = span(row * t.m, t.m), columns = span(column * t.n, t.n);
    Tile a_tile =
        t.transpose_a ? alloc_shared({t.k, t.m}, t.dtype) : alloc_shared({t.m, t.k}, t.dtype);
    Tile b_tile =
        t.transpose_b ? alloc_shared({t.n, t.k}, t.dtype) : alloc_shared({t.k, t.n}, t.dtype);
    Tile sum = alloc_fragment({t.m, t.n}, t.out());
    fill(sum, 3);
    for (auto step : serial(ceildiv(k, t.k))) {
      Span depth = span(step * t.k, t.k);
      copy(t.transpose_a ? a(depth, rows) : a(rows, depth), a_tile);
      copy(t.transpose_b ? b(columns, depth) : b(depth, columns), b_tile);
      gemm(a_tile, b_tile, sum,
           {.transpose_a = t.transpose_a, .transpose_b = t.transpose_b, .clear = t.clear});
    }
    copy(sum, c(rows, columns));
  });
}

// Two or three tiles along each axis, the last one cut off, if only by nothing.
std::string fault(const Tiles& tiles, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto extent = [&](int64_t tile) {
    return tile + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(tile));
  };
  Check check;
  check.options.seed = seed;
  check.options.padded = random() % 2 != 0;
  check.dims = {{"m", extent(tiles.m)}, {"n", extent(tiles.n)}, {"k", extent(tiles.k)}};
  try {
    return check_program(product(tiles), check);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// What a block of the GPU under test cannot hold is refused with this; elsewhere nothing is.
bool is_refused(const Tiles& tiles) {
  if (on_host()) return false;
  const std::string target = device(std::getenv("KILN_TEST_DEVICE")).target();
  return target.starts_with("sm_") && tiles.shared_bytes() > gpu_target(target).shared_per_block;
}

// Every width with each dtype, and every height with every depth, the rest taking turns.
std::vector<Tiles> grid() {
  std::vector<Tiles> all;
  for (DType dtype : kInputs) {
    int64_t turn = 0;
    const auto add = [&](int64_t m, int64_t n, int64_t k) {
      all.push_back({dtype, m, n, k, turn % 2 != 0, turn / 2 % 2 != 0, turn % 5 == 0});
      ++turn;
    };
    for (int64_t n = 8; n <= 256; n += 8) add(16 * (1 + turn % 8), n, 8 * (1 + turn * 3 % 16));
    for (int64_t m = 16; m <= 128; m += 16)
      for (int64_t k : {8, 16, 24, 32, 40, 64, 96, 128}) add(m, 8 * (1 + turn * 5 % 16), k);
  }
  return all;
}

}  // namespace

TEST_CASE("gemm: tiles of every width, height, depth and dtype are exact", "[gemm][tiles]") {
  using Clock = std::chrono::steady_clock;
  std::vector<Tiles> all = grid();
  std::mt19937_64 random(random_seed());
  const bool everything = !on_host() && !uses_host_memory(device(std::getenv("KILN_TEST_DEVICE")));
  if (!everything) std::shuffle(all.begin(), all.end(), random);
  const auto end = Clock::now() + std::chrono::seconds(everything ? 3600 : 8);

  std::vector<std::string> faults(all.size());
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::clamp(std::thread::hardware_concurrency(), 1U, 16U); ++t)
    threads.emplace_back([&, seed = random_seed()] {
      for (size_t i; Clock::now() < end && (i = next++) < all.size();)
        faults[i] = fault(all[i], seed + i);
    });
  for (std::thread& thread : threads) thread.join();

  const size_t ran = std::min<size_t>(next, all.size());
  CHECK(ran >= (everything ? all.size() : 10));
  for (size_t i = 0; i < ran; ++i) {
    INFO(all[i].text());
    if (is_refused(all[i]))
      CHECK_THAT(faults[i], Catch::Contains("shared memory: a block needs") &&
                                Catch::Contains("smaller tiles"));
    else
      CHECK(faults[i] == "");
  }
}
