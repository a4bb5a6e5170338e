#include "tests/differential/generate/expression.h"

#include <limits>

#include "tests/differential/generate/approximate.h"

namespace kiln::differential {
namespace {

// One expression on its way.
class Maker {
 public:
  Maker(Builder& b, Random& random, const std::vector<Leaf>& leaves, Numbers numbers)
      : b_(b), random_(random), leaves_(leaves), numbers_(numbers) {}

  Value make(DType dtype, int depth) {
    if (depth <= 0 || random_.chance(15)) return leaf(dtype);
    if (random_.chance(10)) {
      Value condition = boolean(depth - 1);
      Value a = make(dtype, depth - 1), b = make(dtype, depth - 1);
      return b_.select(condition, a, b);
    }
    if (dtype == Bool) return boolean(depth);
    if (random_.chance(10)) return b_.cast(make(any_dtype(), depth - 1), dtype);
    return is_float(dtype) ? real(dtype, depth) : integer(dtype, depth);
  }

 private:
  DType any_dtype() {
    return random_.pick(
        {F32, F32, F16, BF16, I32, I32, I64, I8, U8, Bool, F64, I16, U16, U32, U64, E4M3, E5M2});
  }

  Value constant(DType dtype) {
    if (dtype == Bool) return b_.constant(Bool, random_.between(0, 1));
    if (numbers_ == Numbers::Any && random_.chance(40)) return extreme(dtype);
    int64_t number = random_.between(is_unsigned_int(dtype) ? 0 : -4, 4);
    return is_float(dtype) ? b_.constant(dtype, static_cast<double>(number))
                           : b_.constant(dtype, number);
  }

  // What of these a type does not have becomes its nearest, or wraps.
  Value extreme(DType dtype) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    if (is_float(dtype))
      return b_.constant(Scalar::of_float(
          dtype, random_.pick({kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN(),
                               0x1p31, -0x1p31, 0x1p63, 0x1p64, 448.0, 464.0, 65520.0, 65519.0,
                               0x1p-149, 0x1p-24, 1e-7, 3.4e38, 0.1, -0.0})));
    const int64_t number =
        random_.pick({INT64_MIN, INT64_MAX, int64_t{INT32_MIN}, int64_t{INT32_MAX}, int64_t{-32768},
                      int64_t{32767}, int64_t{-128}, int64_t{127}, int64_t{31}, int64_t{63}});
    return b_.constant(Scalar::of_int(dtype, random_.chance(50) ? number : number ^ 1));
  }

  Value leaf(DType dtype) {
    if (leaves_.empty() || random_.chance(15)) return constant(dtype);
    const Leaf& from = random_.pick(leaves_);
    Value value = from.storage ? b_.load(from.storage, from.index) : from.scalar;
    return b_.cast(value, dtype);
  }

  Value boolean(int depth) {
    switch (random_.between(0, 3)) {
      case 0:
        return b_.unary(OpCode::Not,
                        random_.chance(50) ? comparison(depth - 1) : make(Bool, depth - 1));
      case 1: {
        Value a = make(Bool, depth - 1), b = make(Bool, depth - 1);
        return b_.binary(random_.pick({OpCode::And, OpCode::Or, OpCode::Xor}), a, b);
      }
      default: return comparison(depth);
    }
  }

  Value comparison(int depth) {
    const DType dtype = any_dtype();
    Value a = make(dtype, depth - 1), b = make(dtype, depth - 1);
    return b_.compare(random_.pick({"eq", "ne", "lt", "le", "gt", "ge"}), a, b);
  }

  Value integer(DType dtype, int depth) {
    if (random_.chance(20))
      return b_.unary(random_.pick({OpCode::Neg, OpCode::Abs, OpCode::Not}),
                      make(dtype, depth - 1));
    const OpCode code = random_.pick({OpCode::Add, OpCode::Sub, OpCode::Mul, OpCode::FloorDiv,
                                      OpCode::FloorMod, OpCode::Min, OpCode::Max, OpCode::And,
                                      OpCode::Or, OpCode::Xor, OpCode::Shl, OpCode::Shr});
    const bool shifts = code == OpCode::Shl || code == OpCode::Shr;
    const auto width = static_cast<int64_t>(8 * size_of(dtype));
    Value a = make(dtype, depth - 1);
    Value b = shifts && random_.chance(30) ? b_.constant(dtype, width + random_.between(-1, 1))
                                           : make(dtype, depth - 1);
    return b_.binary(code, a, b);
  }

  Value real(DType dtype, int depth) {
    auto sub = [&] { return make(dtype, depth - 1); };
    const bool fp8 = size_of(dtype) == 1;  // has no floor
    switch (random_.between(fp8 ? 6 : 0, 13)) {
      case 0: return b_.unary(random_.pick({OpCode::Neg, OpCode::Abs}), sub());
      case 1: return b_.unary(random_.pick({OpCode::Floor, OpCode::Ceil}), sub());
      case 2: return quotient(dtype, depth);
      case 3:
      case 4:
      case 5: {
        Value whole = b_.unary(OpCode::Floor, clamped(b_, sub()));
        return approximated(b_, random_.pick(approximations()), whole);
      }
      case 6: {
        if (dtype != F32 && dtype != F64) return b_.unary(OpCode::Neg, clamped(b_, sub()));
        Value a = sub(), b = sub(), c = sub();
        return b_.kernel().op(b_.emit(OpCode::Fma, {a, b, c}, {}, Type::scalar(dtype))).result;
      }
      default: {
        Value a = sub(), b = sub();
        return b_.binary(
            random_.pick({OpCode::Add, OpCode::Sub, OpCode::Mul, OpCode::Min, OpCode::Max}), a, b);
      }
    }
  }

  // A quotient of integers, made an integer again; both are correctly rounded. Never by a zero,
  // whose sign min and max leave open.
  Value quotient(DType dtype, int depth) {
    Value a = make(dtype, depth - 1);
    Value size = b_.unary(OpCode::Abs, make(dtype, depth - 1));
    Value divisor = b_.binary(OpCode::Max, size, b_.constant(dtype, 1));
    return b_.unary(OpCode::Floor, b_.binary(OpCode::Div, a, divisor));
  }

  Builder& b_;
  Random& random_;
  const std::vector<Leaf>& leaves_;
  const Numbers numbers_;
};

}  // namespace

Value expression(Builder& builder, Random& random, const std::vector<Leaf>& leaves, DType dtype,
                 int depth, Numbers numbers) {
  return Maker(builder, random, leaves, numbers).make(dtype, depth);
}

Value clamped(Builder& builder, Value value) {
  DType dtype = builder.kernel().type(value).dtype;
  Value high = builder.constant(dtype, 4.0), low = builder.constant(dtype, -4.0);
  return builder.binary(OpCode::Max, builder.binary(OpCode::Min, value, high), low);
}

}  // namespace kiln::differential
