// What the fake driver's sources share.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda.h"

namespace kiln::cuda {

struct CUctx_st {
  int device;
};
struct CUmod_st {
  std::string code;
  int device;
};
struct CUfunc_st {
  std::string name, code;
  int device;
  int max_dynamic_shared;
  std::vector<size_t> param_bytes;  // of each parameter
};
struct CUevent_st {
  std::chrono::steady_clock::time_point time;
};

}  // namespace kiln::cuda

namespace kiln::test {

// A graph and what is made of it: launches in order, and memory that lives as long.
struct Graph {
  std::vector<std::pair<cuda::CUfunction, FakeCuda::Launch>> launches;
  std::vector<std::shared_ptr<void>> memory;
};
inline FakeCuda fake;
inline Graph capture;  // what is being captured

// Runs a launch now, whatever stream it is on.
cuda::Result execute(cuda::CUfunction function, const FakeCuda::Launch& launch);

}  // namespace kiln::test

extern "C" {  // in fake_launch.cpp, for fake_cuda.cpp's list of all entry points
kiln::cuda::Result cuLaunchKernel(kiln::cuda::CUfunction function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned dynamic_shared,
                                  kiln::cuda::CUstream stream, void** params, void** extra);
kiln::cuda::Result cuLaunchKernelEx(const kiln::cuda::LaunchConfig* config,
                                    kiln::cuda::CUfunction function, void** params, void** extra);
}
