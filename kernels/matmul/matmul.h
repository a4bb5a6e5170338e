// The product of two matrices.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

struct MatmulConfig {
  DType dtype = F16;  // of a and b: f16, bf16, f32 or f64
  DType out = F32;    // of c
  bool transpose_a = false, transpose_b = false;
  int64_t block_m = 0, block_n = 0, block_k = 0;  // 8 to 256; 0: chosen by validated()
  int64_t stages = kChosen;                       // steps prefetched, 0 to 8
  int64_t threads = 0;  // of a block on a GPU, a multiple of 32; 0: chosen by the compiler
  // The rows and columns of c to expect, 0: many. Only tiles are chosen by them.
  int64_t rows = 0, columns = 0;
  std::string target = {};  // "sm_80"; empty: the device's

  static constexpr int64_t kChosen = -1;
  bool operator==(const MatmulConfig&) const = default;
};
// With what is left open filled in, for its own target or, if it names none, a device's target().
// UserError naming the field, its legal values and what it is.
MatmulConfig validated(MatmulConfig config, std::string_view target = "host");
// The configurations that are measured and tested one by one.
std::span<const MatmulConfig> shipped_matmul_configs();

// c[m, n] = a[m, k] · b[k, n], accumulated in f32 (f64 for f64); with transpose_a, a is [k, m];
// with transpose_b, b is [n, k].
Kernel matmul_kernel(const MatmulConfig& config);

// Tensors in the device's memory, any strides with a contiguous last axis.
struct MatmulArgs {
  Memory a, b, c;
};
struct MatmulLimits {
  int64_t m = 0, n = 0, k = 0;
};
struct MatmulInterface {
  using Config = MatmulConfig;
  using Args = MatmulArgs;
  using Limits = MatmulLimits;
  static constexpr std::array<std::string_view, 3> kTensors = {"a", "b", "c"};
  static Kernel kernel(const Config& config) { return matmul_kernel(config); }
  static std::array<const Memory*, 3> tensors(const Args& args) {
    return {&args.a, &args.b, &args.c};
  }
  static CallScalars<0> scalars(const Config&, const Args&) { return {}; }
  static void check(const Config&, const Args&) {}
  static kiln::Limits dims(const Limits& limits) {
    return {{"m", limits.m}, {"n", limits.n}, {"k", limits.k}};
  }
};
using Matmul = LibraryFunction<MatmulInterface>;
Matmul matmul(Device& device, const MatmulConfig& config);

KernelEntry matmul_entry();

}  // namespace kiln
