// Softmax of each row of a matrix.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

struct RowSoftmaxConfig {
  DType dtype = F32;                    // of x and y: f16, bf16 or f32
  int64_t block_m = 16, block_n = 128;  // rows, 1 to 128, and columns, 1 to 8192, at a time
  bool fast_math = true;
  std::string target = {};  // "sm_80"; empty: the device's
  bool operator==(const RowSoftmaxConfig&) const = default;
};
// UserError naming the field, its legal values and what it is.
RowSoftmaxConfig validated(const RowSoftmaxConfig& config);

// y[rows, cols] = softmax of each row of x; a row of -inf alone gives NaN, as NumPy does.
Kernel row_softmax_kernel(const RowSoftmaxConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis.
struct RowSoftmaxArgs {
  Memory x, y;
};
struct RowSoftmaxLimits {
  int64_t rows = 0, cols = 0;
};
struct RowSoftmaxInterface {
  using Config = RowSoftmaxConfig;
  using Args = RowSoftmaxArgs;
  using Limits = RowSoftmaxLimits;
  static constexpr std::array<std::string_view, 2> kTensors = {"x", "y"};
  static Kernel kernel(const Config& config) { return row_softmax_kernel(config); }
  static std::array<const Memory*, 2> tensors(const Args& args) { return {&args.x, &args.y}; }
  static CallScalars<0> scalars(const Config&, const Args&) { return {}; }
  static void check(const Config&, const Args&) {}
  static kiln::Limits dims(const Limits& limits) {
    return {{"rows", limits.rows}, {"cols", limits.cols}};
  }
};
using RowSoftmax = LibraryFunction<RowSoftmaxInterface>;
RowSoftmax row_softmax(Device& device, const RowSoftmaxConfig& config);

KernelEntry row_softmax_entry();

}  // namespace kiln
