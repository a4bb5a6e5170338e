// Kiln inside another program's process: a shared library that beside_torch.py loads into Python.
#include <string>

#include "kernels/row_softmax/row_softmax.h"
#include "runtime/compile.h"
#include "runtime/cuda_device.h"

// y = softmax of the rows of x, f32, on the caller's stream; does not wait. Null, or what is wrong.
extern "C" [[gnu::visibility("default")]] const char* kiln_row_softmax(void* x, void* y,
                                                                       int64_t rows, int64_t cols,
                                                                       void* stream) {
  using namespace kiln;
  static thread_local std::string problem;
  try {
    static const auto kernel =
        cuda_executable(compile(cuda_device(), row_softmax_kernel({F32, 1, 4096})));
    const Memory from = Memory::contiguous(x, F32, {rows, cols});
    const Memory to = Memory::contiguous(y, F32, {rows, cols});
    const Memory* tensors[] = {&from, &to};
    kernel->launch({.tensors = tensors}, static_cast<cuda::CUstream>(stream));
    return nullptr;
  } catch (const std::exception& error) {
    problem = error.what();
    return problem.c_str();
  }
}
