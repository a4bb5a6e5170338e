// Conversions between fp8 and f32: an instruction from sm_89 on, integer arithmetic before.
#pragma once

#include "codegen/nvptx_builder_impl.h"

namespace kiln::nvptx {

// fp8 values are i8. Rounds once, to nearest even; what is too large, infinity included, becomes
// the largest finite value.
Val f32_to_fp8(Builder& b, Val value, DType to);
Val fp8_to_f32(Builder& b, Val value, DType from);  // exact

}  // namespace kiln::nvptx
