// What the tests of the CUDA driver's door share: a driver without a GPU.
#pragma once

#include <functional>
#include <string>

#include "tests/support/allocations.h"
#include "tests/support/fake_cuda.h"

namespace kiln::test {

// The fake driver with a fresh script. From the first call on it is this process's driver.
FakeCuda& fake_cuda();
std::string fake_cuda_library();  // its path

// Runs `action`; the text of its DeviceError with the hint, or "no device error".
std::string device_error_of(const std::function<void()>& action);

// y[i] += a · x[i], which the fake driver can run: (x, y: pointers; a: f32; n: u32).
std::string saxpy_ptx(const std::string& version = "8.0");

}  // namespace kiln::test
