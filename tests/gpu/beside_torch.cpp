// Kiln inside another program's process: what beside_torch.py calls in Python, through libkiln.so.
#include <string>
#include <string_view>

#include "kernels/row_softmax/row_softmax.h"
#include "runtime/compile.h"
#include "runtime/cuda_device.h"

namespace {

using namespace kiln;

Kernel softmax() {
  return row_softmax_kernel(F32, 1, 4096, true);
}

void run_softmax(std::string_view device_name, const Memory& x, const Memory& y, void* stream) {
  if (device_name == "host") {
    static const Compiled kernel = compile(device("host"), softmax());
    return kernel(Arguments().tensor("x", x).tensor("y", y));
  }
  static const auto kernel = cuda_executable(compile(cuda_device(), softmax()));
  const Memory* tensors[] = {&x, &y};
  kernel->launch({.tensors = tensors}, static_cast<cuda::CUstream>(stream));
}

}  // namespace

// y = softmax of the rows of x, f32, on "host", or on "cuda" on the caller's stream without
// waiting. Null, or what is wrong.
extern "C" [[gnu::visibility("default")]] const char* kiln_row_softmax(const char* device_name,
                                                                       void* x, void* y,
                                                                       int64_t rows, int64_t cols,
                                                                       void* stream) {
  static thread_local std::string problem;
  try {
    run_softmax(device_name, Memory::contiguous(x, F32, {rows, cols}),
                Memory::contiguous(y, F32, {rows, cols}), stream);
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
