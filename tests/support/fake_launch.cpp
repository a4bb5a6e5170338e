// Launches of the fake driver.
#include <cstring>
#include <mutex>

#include "tests/support/fake_kernels.h"
#include "tests/support/fake_state.h"

using namespace kiln::cuda;
using kiln::test::capture;
using kiln::test::fake;
using kiln::test::FakeCuda;

Result kiln::test::execute(CUfunction function, const FakeCuda::Launch& launch) {
  if (function->name == "saxpy") return kiln::test::saxpy(fake, launch);
  if (function->name == "scale") return kiln::test::scale(fake, launch);
  return fake.execute ? fake.execute(fake, launch, function->code) : Result::Success;
}

extern "C" {

Result cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                      unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_shared,
                      CUstream stream, void** params, void** extra) {
  Result answer = fake.enter(FakeCuda::entry("cuLaunchKernel"));
  if (answer != Result::Success) return answer;
  if (fake.launches_left == 0) return Result::LaunchFailed;
  if (fake.launches_left > 0) --fake.launches_left;
  const std::vector<CUcontext>& stack = fake.stack();
  if (stack.empty() || stack.back()->device != function->device) return Result::InvalidContext;
  if (!params == !extra) return Result::InvalidValue;
  if (block_x * block_y * block_z > static_cast<unsigned>(fake.max_threads))
    return Result::LaunchOutOfResources;
  if (dynamic_shared > static_cast<unsigned>(function->max_dynamic_shared))
    return Result::InvalidValue;
  std::lock_guard lock(fake.launching);
  if (fake.history) fake.history->push_back(function->name);
  fake.launch_before = fake.last_launch;
  FakeCuda::Launch& launch = fake.last_launch;
  if (params) {
    launch.param_bytes = 0;
    for (const size_t bytes : function->param_bytes) {
      if (launch.param_bytes + bytes > launch.params.size()) return Result::InvalidValue;
      std::memcpy(launch.params.data() + launch.param_bytes, *params++, bytes);
      launch.param_bytes += bytes;
    }
  } else {
    const void* buffer = nullptr;
    for (; *extra != kParamEnd; extra += 2) {
      if (extra[0] == kParamBufferPointer) buffer = extra[1];
      if (extra[0] == kParamBufferSize) launch.param_bytes = *static_cast<size_t*>(extra[1]);
    }
    if (launch.param_bytes > launch.params.size()) return Result::InvalidValue;
    if (launch.param_bytes > 0) std::memcpy(launch.params.data(), buffer, launch.param_bytes);
  }
  launch.function = function->name;
  launch.grid = {grid_x, grid_y, grid_z};
  launch.block = {block_x, block_y, block_z};
  launch.dynamic_shared = dynamic_shared;
  launch.stream = stream;
  launch.device = function->device;
  launch.early = false;
  if (!stream || stream != fake.captured) return kiln::test::execute(function, launch);
  capture.launches.emplace_back(function, launch);
  return Result::Success;
}

Result cuLaunchKernelEx(const LaunchConfig* config, CUfunction function, void** params,
                        void** extra) {
  Result answer = fake.enter(FakeCuda::entry("cuLaunchKernelEx"));
  if (answer != Result::Success) return answer;
  if (config->count != 1 || config->attributes->id != LaunchAttribute::kEarly ||
      config->attributes->allowed != 1)
    return Result::InvalidValue;
  const unsigned *grid = config->grid, *block = config->block;
  answer = cuLaunchKernel(function, grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          config->dynamic_shared, config->stream, params, extra);
  fake.last_launch.early = true;
  return answer;
}

}  // extern "C"
