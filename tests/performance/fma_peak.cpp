#include "tests/performance/fma_peak.h"

#include <immintrin.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace kiln::performance {
namespace {

// Enough independent chains to hide the latency of an FMA (4 cycles, two a cycle) and few enough to
// stay in registers.
constexpr int kChains = 12;

__attribute__((target("avx512f"))) float spin_avx512(int64_t steps, float x) {
  __m512 sums[kChains], a = _mm512_set1_ps(x), b = _mm512_set1_ps(1 - x);
  for (int i = 0; i < kChains; ++i) sums[i] = _mm512_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, b);
  }
  __m512 total = sums[0];
  for (int i = 1; i < kChains; ++i) total = _mm512_add_ps(total, sums[i]);
  return _mm512_cvtss_f32(total);
}

__attribute__((target("avx2,fma"))) float spin_avx2(int64_t steps, float x) {
  __m256 sums[kChains], a = _mm256_set1_ps(x), b = _mm256_set1_ps(1 - x);
  for (int i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, b);
  }
  __m256 total = sums[0];
  for (int i = 1; i < kChains; ++i) total = _mm256_add_ps(total, sums[i]);
  return _mm256_cvtss_f32(total);
}

}  // namespace

double fma_peak_gflops(int threads, double seconds) {
  const bool wide = __builtin_cpu_supports("avx512f");
  const double flops_per_step = 2.0 * kChains * (wide ? 16 : 8);
  constexpr int64_t kSteps = 1'000'000;
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  std::vector<double> rates(static_cast<size_t>(threads));
  auto work = [&](double& rate) {
    int64_t steps = 0;
    volatile float sink = 0;
    do {
      sink = sink + (wide ? spin_avx512(kSteps, 0.5F) : spin_avx2(kSteps, 0.5F));
      steps += kSteps;
    } while (elapsed() < seconds);
    rate = static_cast<double>(steps) * flops_per_step / elapsed() / 1e9;
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < rates.size(); ++i) others.emplace_back(work, std::ref(rates[i]));
  work(rates[0]);
  for (std::thread& thread : others) thread.join();
  double total = 0;
  for (double rate : rates) total += rate;
  return total;
}

}  // namespace kiln::performance
