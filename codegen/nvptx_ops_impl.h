// Scalar ops on a GPU: free functions of the builder.
#pragma once

#include "codegen/nvptx_builder_impl.h"
#include "ir/kernel.h"

namespace kiln::nvptx {

// Op `cast` (ir/dtype.h: convert) of one value. nvptx_convert.cpp
Val cast(Builder& b, Val value, DType from, DType to);
// Two f32 rounded to f16 or bf16 and packed in an i32, the first in the low half.
Val pack_rounded(Builder& b, Val low, Val high, DType to);

// Any scalar op but const: the values of its operands give its result's. nvptx_scalar.cpp
Val scalar_op(Builder& b, const Kernel& kernel, const Op& op, std::span<const Val> operands);
// max, min, add, … of two values of one dtype, as the op of that code means them.
Val binary(Builder& b, OpCode code, DType dtype, Val x, Val y, bool fast = false);
Val absolute(Builder& b, DType dtype, Val x);  // op `abs`

// exp, exp2, log, log2, sqrt, rsqrt, tanh of f32 and f64 values. nvptx_math.cpp
Val math(Builder& b, OpCode code, DType dtype, Val x, bool fast);

}  // namespace kiln::nvptx
