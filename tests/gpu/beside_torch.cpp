// Kiln inside another program's process: what beside_torch.py calls in Python, through libkiln.so.
#include <string>
#include <string_view>

#include "kernels/row_softmax/row_softmax.h"
#include "runtime/compile.h"
#include "runtime/cuda_device.h"

namespace {

using namespace kiln;

void run_softmax(std::string_view device_name, const Memory& x, const Memory& y, void* stream) {
  const RowSoftmaxConfig config{F32, 1, 4096};
  if (device_name == "host") {
    static const RowSoftmax kernel = row_softmax(device("host"), config);
    return kernel({x, y});
  }
  static const RowSoftmax kernel = row_softmax(cuda_device(), config);
  kernel({x, y}, stream);
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
