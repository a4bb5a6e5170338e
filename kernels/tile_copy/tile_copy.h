// A matrix copied tile by tile, with its dtype converted: the simplest kernel there is, and the one
// that shows what memory can do.
#pragma once

#include "kernels/registry.h"

namespace kiln {

// y[rows, cols] = x, converted to dtype `to`.
Kernel tile_copy_kernel(DType from, DType to, int64_t tile_m, int64_t tile_n);

KernelEntry tile_copy_entry();

}  // namespace kiln
