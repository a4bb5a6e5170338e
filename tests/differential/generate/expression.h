// Random element-wise expressions.
#pragma once

#include <vector>

#include "ir/builder.h"
#include "tests/differential/random.h"

namespace kiln::differential {

// Where an expression may take its values from: functions of the place are kept as plain data.
struct Leaf {
  Value storage;  // loaded at `index`; none: `scalar` itself
  std::vector<Value> index;
  Value scalar;
};

// Small: constants are small integers. Any: also infinities, NaN and the ends of integer types.
enum class Numbers { Small, Any };

// A value of `dtype` from leaves, constants and ops that are exact or correctly rounded, at most
// `depth` deep. Small float results are integers or infinities.
Value expression(Builder& builder, Random& random, const std::vector<Leaf>& leaves, DType dtype,
                 int depth, Numbers numbers);

// Clamped to |x| ≤ 4 and, for f16 and narrower, exact in every float type.
Value clamped(Builder& builder, Value value);

}  // namespace kiln::differential
