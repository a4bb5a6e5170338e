#include "tests/gpu/race.h"

#include <algorithm>
#include <random>
#include <thread>

#include "runtime/cuda_event.h"

namespace kiln {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double time_ms(const CudaDevice& gpu, const Contender& contender, int runs) {
  cuda::Event start(gpu.context()), stop(gpu.context());
  contender.launch();
  start.record(nullptr);
  for (int i = 0; i < runs; ++i) contender.launch();
  stop.record(nullptr);
  return elapsed_ms(start, stop) / runs;
}

}  // namespace

void fill_normal(Array& array, uint64_t seed) {
  const auto parts = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (int64_t part = 0; part < parts; ++part)
    threads.emplace_back([&, part] {
      std::mt19937_64 random(seed * 977 + static_cast<uint64_t>(part));
      std::normal_distribution<float> normal;
      for (int64_t i = array.size() * part / parts; i < array.size() * (part + 1) / parts; ++i)
        array.set(i, normal(random));
    });
  for (std::thread& thread : threads) thread.join();
}

double RaceResult::median_ms() const {
  return median(ms);
}

std::vector<RaceResult> race(const CudaDevice& gpu, const std::vector<Contender>& contenders,
                             int rounds, double slice_ms) {
  std::vector<RaceResult> results;
  std::vector<int> runs;
  for (const Contender& contender : contenders) {
    results.push_back({contender.name, {}});
    runs.push_back(std::max(3, static_cast<int>(slice_ms / time_ms(gpu, contender, 1))));
  }
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < contenders.size(); ++i)
      results[i].ms.push_back(time_ms(gpu, contenders[i], runs[i]));
  return results;
}

double time_ratio(const RaceResult& a, const RaceResult& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.ms.size(); ++i) ratios.push_back(a.ms[i] / b.ms[i]);
  return median(ratios);
}

}  // namespace kiln
