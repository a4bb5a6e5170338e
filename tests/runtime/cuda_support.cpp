#include "tests/runtime/cuda_support.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

#include "ir/error.h"

namespace kiln::test {

std::string fake_cuda_library() {
  return KILN_FAKE_CUDA;
}

FakeCuda& fake_cuda() {
  static FakeCuda* fake = [] {
    ::setenv("KILN_LIBCUDA", KILN_FAKE_CUDA, 1);
    void* library = dlopen(KILN_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "kiln_fake_cuda"))();
  }();
  fake->reset(*fake);
  return *fake;
}

std::string device_error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "no device error";
}

std::string saxpy_ptx(const std::string& version) {
  return ".version " + version +
         "\n.target sm_80\n.address_size 64\n"
         ".visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)\n"
         "{\n  ret;\n}\n.visible .entry empty()\n{\n  ret;\n}\n";
}

}  // namespace kiln::test
