// Kernels timed in turn: the card's clock wanders, so only what ran side by side is comparable.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/array.h"
#include "runtime/cuda_device.h"

namespace kiln {

struct Contender {
  std::string name;
  std::function<void()> launch;  // queues one run on the legacy default stream
};

struct RaceResult {
  std::string name;
  std::vector<double> ms;  // of one run, by round
  double median_ms() const;
};

// Each round runs every contender for about `slice_ms`, after one run that is not timed.
std::vector<RaceResult> race(const CudaDevice& gpu, const std::vector<Contender>& contenders,
                             int rounds = 9, double slice_ms = 15);

// The median over rounds of a's time over b's in the same round.
double time_ratio(const RaceResult& a, const RaceResult& b);

void fill_normal(Array& array, uint64_t seed);  // by all cores

// gpu_tests --race-attention PROTOTYPE.ptx | --race-gemm LIBCUBLAS: hand-written kernels of
// tests/files/late against the CUDA prototype of the same schedule, and against cuBLAS.
int race_attention(const std::string& prototype);
int race_gemm(const std::string& cublas);

}  // namespace kiln
