// Softmax of each row of a matrix.
#pragma once

#include "kernels/registry.h"

namespace kiln {

// y[rows, cols] = softmax of each row of x; a row of -inf alone gives NaN, as NumPy does.
Kernel row_softmax_kernel(DType dtype, int64_t tile_m, int64_t tile_n, bool fast_math);

KernelEntry row_softmax_entry();

}  // namespace kiln
