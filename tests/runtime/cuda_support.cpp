#include "tests/runtime/cuda_support.h"

#include <dlfcn.h>

#include <cstdlib>
#include <new>
#include <stdexcept>

#include "ir/error.h"

static thread_local int64_t allocated = 0;

// Of the whole test program: the only way to see that a path allocates nothing. All the forms that
// may be mixed, so that a sanitizer's own are not.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocated;
  return std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(size_t bytes) {
  if (void* memory = operator new(bytes, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace kiln::test {

int64_t allocations() {
  return allocated;
}

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
