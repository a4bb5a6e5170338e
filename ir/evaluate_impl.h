// Scalar ops on decoded operands: the hot path of the interpreter, without attribute look-ups.
#pragma once

#include "ir/kernel.h"

namespace kiln {

enum class Comparison : uint8_t { Eq, Ne, Lt, Le, Gt, Ge };
Comparison comparison_of(const Op& compare);

// Every op that computes a scalar from scalars alone, Const included.
inline bool is_scalar_op(OpCode code) {
  return code >= OpCode::Const;
}

// The value of a scalar op other than Const. `comparison` matters to Compare only.
Scalar apply(OpCode code, DType result, Comparison comparison, const Scalar* in);

// The smaller or larger of two; of a number and a NaN, the number.
Scalar min_of(const Scalar& a, const Scalar& b);
Scalar max_of(const Scalar& a, const Scalar& b);

}  // namespace kiln
