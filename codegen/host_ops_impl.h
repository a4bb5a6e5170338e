// Scalar ops on one value or a vector of them.
#pragma once

#include "codegen/host_builder_impl.h"

namespace kiln::host {

// The meaning of op `cast`, on values.
Val cast(Builder& b, Val value, DType from, DType to);
// A float value (f32 or f64) rounded once to `to`; a value of `to`.
Val round_to(Builder& b, Val value, DType to);
// Between a value and the bits that a tensor holds.
Val to_bits(Builder& b, Val value, DType dtype);
Val from_bits(Builder& b, Val bits, DType dtype);

// A pure op other than Const, on operands of `dtype` (the first's; of Select, the second's).
Val apply(Builder& b, const Op& op, DType dtype, DType result, std::span<const Val> in);
// For reductions: as max and min, but a NaN in `a` stays; one in `x` is ignored.
Val maximum(Builder& b, Val a, Val x, DType dtype);
Val minimum(Builder& b, Val a, Val x, DType dtype);
Val absolute(Builder& b, Val a, DType dtype);

// f32 functions by polynomials, within 2 ulp; `fast` allows 4.
Val exp2_f32(Builder& b, Val x, bool fast);
Val exp_f32(Builder& b, Val x, bool fast);
Val log2_f32(Builder& b, Val x);
Val log_f32(Builder& b, Val x);
Val tanh_f32(Builder& b, Val x);

}  // namespace kiln::host
