// Launching a function: nothing is allocated and nothing waited for on the way.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "runtime/cuda_module.h"

namespace kiln::cuda {

struct LaunchShape {
  std::array<int64_t, 3> grid = {1, 1, 1};  // blocks, x first
  std::array<int, 3> block = {1, 1, 1};     // threads, x first
  bool early = false;  // may begin while what was queued before it runs: it waits for that itself
};

// Queues the kernel on the caller's stream and returns; may be captured into a graph. `params` are
// the PTX's parameters in order: `maps` tensor maps (codegen/abi.h) aligned as they must be, then
// words of 8 bytes, at most kMostParameterWords in all. An empty grid runs nothing.
// UserError if the grid is too large; DeviceError naming the kernel if the driver refuses.
void launch(const Function& function, const LaunchShape& shape, CUstream stream,
            std::span<const std::byte> params, size_t maps = 0);
inline constexpr size_t kMostParameterWords = 512;  // 4 KiB, what every device takes

}  // namespace kiln::cuda
