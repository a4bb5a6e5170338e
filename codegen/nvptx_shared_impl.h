// What is known of a view of a shared tile when code is generated.
#pragma once

#include "codegen/nvptx_emit_impl.h"

namespace kiln::nvptx {

// A divisor of an i32 that holds whatever happens at run time; 0 for the constant 0.
int64_t known_divisor(Val value);

// The most elements along `axis`, a power of two, of which a group that begins at a multiple of so
// many, counted in the view, is consecutive in memory and begins at a multiple of their bytes.
int64_t view_vector(const Place& place, int axis);

}  // namespace kiln::nvptx
