// Block-sparse attention in the registry.
#pragma once

#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/registry.h"

namespace kiln {

AttentionConfig attention_config(const Options& options);
KernelEntry block_sparse_attention_entry();

}  // namespace kiln
