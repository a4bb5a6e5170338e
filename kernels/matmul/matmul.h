// The product of two matrices.
#pragma once

#include "kernels/registry.h"

namespace kiln {

struct MatmulConfig {
  DType dtype = F16;  // of a and b: f16, bf16, f32 or f64
  DType out = F32;    // of c
  bool transpose_a = false, transpose_b = false;
  int64_t tile_m = 64, tile_n = 64, tile_k = 64;
  int64_t stages = 2;
  int64_t threads = 0;  // of a block on a GPU; 0: chosen by the compiler
};
// c[m, n] = a[m, k] · b[k, n], accumulated in f32 (f64 for f64); with transpose_a, a is [k, m];
// with transpose_b, b is [n, k].
Kernel matmul_kernel(const MatmulConfig& config);

KernelEntry matmul_entry();

}  // namespace kiln
