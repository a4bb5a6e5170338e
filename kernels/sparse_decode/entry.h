// The registry's view of sparse_decode.
#pragma once

#include "kernels/registry.h"
#include "kernels/sparse_decode/sparse_decode.h"

namespace kiln {

DecodeConfig decode_config(const Options& options);
KernelEntry sparse_decode_entry();

}  // namespace kiln
