#include "tests/differential/generate/approximate.h"

namespace kiln::differential {

const std::vector<Approximation>& approximations() {
  static const std::vector<Approximation> table = {
      {OpCode::Exp, -4, 4, 0.125, 0.75}, {OpCode::Exp2, -4, 4, 0.5, 0.4375},
      {OpCode::Log, 1, 4, 3, 0.3125},    {OpCode::Log2, 1, 4, 2, 0.4375},
      {OpCode::Sqrt, 1, 4, 3, 0.4375},   {OpCode::Rsqrt, 1, 4, 4, 0.4375},
      {OpCode::Tanh, -4, 4, 4, 0.5},
  };
  return table;
}

Value approximated(Builder& builder, const Approximation& how, Value argument) {
  const DType dtype = builder.kernel().type(argument).dtype;
  auto constant = [&](double value) { return builder.constant(dtype, value); };
  Value x = argument;
  if (how.low > 0)
    x = builder.binary(OpCode::Max, builder.unary(OpCode::Abs, x),
                       constant(static_cast<double>(how.low)));
  Value y = builder.binary(OpCode::Mul, builder.unary(how.code, x), constant(how.scale));
  return builder.unary(OpCode::Floor, builder.binary(OpCode::Add, y, constant(how.offset)));
}

}  // namespace kiln::differential
