// A GPU for tests of what only GPUs have: the one that KILN_TEST_DEVICE names, else the fake driver
// with the emulator behind it.
#pragma once

#include <cstdlib>
#include <string_view>

#include "runtime/cuda_device.h"
#include "tests/support/emulated_cuda.h"

namespace kiln::test {

inline bool has_gpu() {
  const char* name = std::getenv("KILN_TEST_DEVICE");
  return name && std::string_view(name).starts_with("cuda");
}

// `fake_library`: the fake driver's path.
inline CudaDevice& some_gpu(const char* fake_library) {
  if (!has_gpu()) emulated_cuda(fake_library);
  return cuda_device();
}

}  // namespace kiln::test
