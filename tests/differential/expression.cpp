#include "tests/differential/expression.h"

namespace kiln::differential {
namespace {

DType any_dtype(Random& random) {
  return random.pick({F32, F32, F16, BF16, I32, I32, I64, I8, U8, Bool, F64, I16, U16, U32});
}

Value constant(Builder& builder, Random& random, DType dtype) {
  if (dtype == Bool) return builder.constant(Bool, random.between(0, 1));
  if (is_unsigned_int(dtype)) return builder.constant(dtype, random.between(0, 4));
  if (is_float(dtype)) return builder.constant(dtype, static_cast<double>(random.between(-4, 4)));
  return builder.constant(dtype, random.between(-4, 4));
}

Value leaf(Builder& builder, Random& random, const std::vector<Leaf>& leaves, DType dtype) {
  if (leaves.empty() || random.chance(15)) return constant(builder, random, dtype);
  const Leaf& from = random.pick(leaves);
  Value value = from.storage ? builder.load(from.storage, from.index) : from.scalar;
  return builder.cast(value, dtype);
}

Value boolean(Builder& builder, Random& random, const std::vector<Leaf>& leaves, int depth) {
  auto sub = [&](DType dtype) { return expression(builder, random, leaves, dtype, depth - 1); };
  switch (random.between(0, 3)) {
    case 0: return builder.unary(OpCode::Not, sub(Bool));
    case 1: {
      Value a = sub(Bool), b = sub(Bool);
      return builder.binary(random.pick({OpCode::And, OpCode::Or, OpCode::Xor}), a, b);
    }
    default: {
      DType dtype = any_dtype(random);
      Value a = sub(dtype), b = sub(dtype);
      return builder.compare(random.pick({"eq", "ne", "lt", "le", "gt", "ge"}), a, b);
    }
  }
}

Value integer(Builder& builder, Random& random, const std::vector<Leaf>& leaves, DType dtype,
              int depth) {
  auto sub = [&] { return expression(builder, random, leaves, dtype, depth - 1); };
  if (random.chance(20))
    return builder.unary(random.pick({OpCode::Neg, OpCode::Abs, OpCode::Not}), sub());
  Value a = sub(), b = sub();
  return builder.binary(random.pick({OpCode::Add, OpCode::Sub, OpCode::Mul, OpCode::FloorDiv,
                                     OpCode::FloorMod, OpCode::Min, OpCode::Max, OpCode::And,
                                     OpCode::Or, OpCode::Xor, OpCode::Shl, OpCode::Shr}),
                        a, b);
}

Value real(Builder& builder, Random& random, const std::vector<Leaf>& leaves, DType dtype,
           int depth) {
  auto sub = [&] { return expression(builder, random, leaves, dtype, depth - 1); };
  const bool fp8 = size_of(dtype) == 1;  // has no floor
  switch (random.between(fp8 ? 3 : 0, 9)) {
    case 0: return builder.unary(random.pick({OpCode::Neg, OpCode::Abs}), sub());
    case 1: return builder.unary(random.pick({OpCode::Floor, OpCode::Ceil}), sub());
    case 2: {  // a quotient of integers, made an integer again; both are correctly rounded. Never
               // by a zero, whose sign min and max leave open.
      Value a = sub(), b = sub();
      Value divisor =
          builder.binary(OpCode::Max, builder.unary(OpCode::Abs, b), builder.constant(dtype, 1));
      return builder.unary(OpCode::Floor, builder.binary(OpCode::Div, a, divisor));
    }
    case 3: {
      if (dtype != F32 && dtype != F64) return clamped(builder, sub());
      Value a = sub(), b = sub(), c = sub();
      return builder.kernel()
          .op(builder.emit(OpCode::Fma, {a, b, c}, {}, Type::scalar(dtype)))
          .result;
    }
    default: {
      Value a = sub(), b = sub();
      return builder.binary(
          random.pick({OpCode::Add, OpCode::Sub, OpCode::Mul, OpCode::Min, OpCode::Max}), a, b);
    }
  }
}

}  // namespace

Value expression(Builder& builder, Random& random, const std::vector<Leaf>& leaves, DType dtype,
                 int depth) {
  if (depth <= 0 || random.chance(15)) return leaf(builder, random, leaves, dtype);
  if (random.chance(10)) {
    Value condition = boolean(builder, random, leaves, depth - 1);
    Value a = expression(builder, random, leaves, dtype, depth - 1);
    Value b = expression(builder, random, leaves, dtype, depth - 1);
    return builder.select(condition, a, b);
  }
  if (dtype == Bool) return boolean(builder, random, leaves, depth);
  if (random.chance(10))
    return builder.cast(expression(builder, random, leaves, any_dtype(random), depth - 1), dtype);
  return is_float(dtype) ? real(builder, random, leaves, dtype, depth)
                         : integer(builder, random, leaves, dtype, depth);
}

Value clamped(Builder& builder, Value value) {
  DType dtype = builder.kernel().type(value).dtype;
  Value high = builder.constant(dtype, 4.0), low = builder.constant(dtype, -4.0);
  return builder.binary(OpCode::Max, builder.binary(OpCode::Min, value, high), low);
}

}  // namespace kiln::differential
