// What scalar ops mean. Floats are computed in double and rounded once: for + − × ÷ √ of every
// format up to f32 that equals rounding the exact result, since a double has more than twice the
// digits. The transcendental functions are the C library's in double, rounded once.
#include <cmath>

#include "ir/error.h"
#include "ir/evaluate_impl.h"
#include "ir/interp.h"

namespace kiln {
namespace {

int bits_of(DType dtype) {
  return static_cast<int>(size_of(dtype)) * 8;
}

Scalar real(DType dtype, double value) {
  return Scalar::of_float(dtype, value);
}

// Wrapping is defined on unsigned arithmetic; the low bits are the same for both signs.
Scalar integer(DType dtype, uint64_t value) {
  return Scalar::of_int(dtype, static_cast<int64_t>(value));
}

Scalar truth(bool value) {
  return Scalar::of_int(Bool, value);
}

bool less(const Scalar& a, const Scalar& b) {
  if (is_float(a.dtype)) return a.f < b.f;
  if (a.dtype == U64) return static_cast<uint64_t>(a.i) < static_cast<uint64_t>(b.i);
  return a.i < b.i;
}

bool equal(const Scalar& a, const Scalar& b) {
  return is_float(a.dtype) ? a.f == b.f : a.i == b.i;
}

bool is_nan(const Scalar& a) {
  return is_float(a.dtype) && std::isnan(a.f);
}

bool compare(Comparison comparison, const Scalar& a, const Scalar& b) {
  switch (comparison) {
    case Comparison::Eq: return equal(a, b);
    case Comparison::Ne: return !equal(a, b);
    case Comparison::Lt: return less(a, b);
    case Comparison::Le: return less(a, b) || equal(a, b);
    case Comparison::Gt: return less(b, a);
    case Comparison::Ge: return less(b, a) || equal(a, b);
  }
  return false;
}

// −1 is kept out of the machine's division: the smallest integer divided by it traps.
Scalar floor_div(const Scalar& a, const Scalar& b) {
  if (b.i == 0) return integer(a.dtype, 0);
  if (is_unsigned_int(a.dtype))
    return integer(a.dtype, static_cast<uint64_t>(a.i) / static_cast<uint64_t>(b.i));
  if (b.i == -1) return integer(a.dtype, -static_cast<uint64_t>(a.i));
  int64_t quotient = a.i / b.i, remainder = a.i % b.i;
  bool below = remainder != 0 && (remainder < 0) != (b.i < 0);
  return Scalar::of_int(a.dtype, quotient - below);
}

Scalar floor_mod(const Scalar& a, const Scalar& b) {
  if (b.i == 0) return integer(a.dtype, 0);
  if (is_unsigned_int(a.dtype))
    return integer(a.dtype, static_cast<uint64_t>(a.i) % static_cast<uint64_t>(b.i));
  if (b.i == -1) return integer(a.dtype, 0);
  int64_t remainder = a.i % b.i;
  if (remainder != 0 && (remainder < 0) != (b.i < 0)) remainder += b.i;
  return Scalar::of_int(a.dtype, remainder);
}

Scalar shift(OpCode code, const Scalar& a, const Scalar& b) {
  uint64_t by = static_cast<uint64_t>(b.i);  // a negative count is a huge one
  bool all_out = by >= static_cast<uint64_t>(bits_of(a.dtype));
  if (code == OpCode::Shl) return integer(a.dtype, all_out ? 0 : static_cast<uint64_t>(a.i) << by);
  if (is_unsigned_int(a.dtype))
    return integer(a.dtype, all_out ? 0 : static_cast<uint64_t>(a.i) >> by);
  return Scalar::of_int(a.dtype, a.i >> (all_out ? 63 : by));
}

Scalar fma(const Scalar* in) {
  if (in[0].dtype == F64) return real(F64, std::fma(in[0].f, in[1].f, in[2].f));
  return real(F32, std::fma(static_cast<float>(in[0].f), static_cast<float>(in[1].f),
                            static_cast<float>(in[2].f)));
}

Scalar arithmetic(OpCode code, const Scalar& a, const Scalar& b) {
  if (is_float(a.dtype)) {
    switch (code) {
      case OpCode::Add: return real(a.dtype, a.f + b.f);
      case OpCode::Sub: return real(a.dtype, a.f - b.f);
      default: return real(a.dtype, a.f * b.f);
    }
  }
  uint64_t x = static_cast<uint64_t>(a.i), y = static_cast<uint64_t>(b.i);
  switch (code) {
    case OpCode::Add: return integer(a.dtype, x + y);
    case OpCode::Sub: return integer(a.dtype, x - y);
    default: return integer(a.dtype, x * y);
  }
}

// The sign of a float changes without a conversion, which would saturate an infinity of e5m2.
Scalar with_value(Scalar a, double value) {
  a.f = value;
  return a;
}

Scalar negate(const Scalar& a) {
  return is_float(a.dtype) ? with_value(a, -a.f) : integer(a.dtype, -static_cast<uint64_t>(a.i));
}

Scalar absolute(const Scalar& a) {
  if (is_float(a.dtype)) return with_value(a, std::fabs(a.f));
  return is_signed_int(a.dtype) && a.i < 0 ? negate(a) : a;
}

Scalar complement(const Scalar& a) {
  return a.dtype == Bool ? truth(!a.i) : integer(a.dtype, ~static_cast<uint64_t>(a.i));
}

double function(OpCode code, double a) {
  switch (code) {
    case OpCode::Exp: return std::exp(a);
    case OpCode::Exp2: return std::exp2(a);
    case OpCode::Log: return std::log(a);
    case OpCode::Log2: return std::log2(a);
    case OpCode::Sqrt: return std::sqrt(a);
    case OpCode::Rsqrt: return 1.0 / std::sqrt(a);
    case OpCode::Tanh: return std::tanh(a);
    case OpCode::Floor: return std::floor(a);
    case OpCode::Ceil: return std::ceil(a);
    default: throw InternalError("not a scalar function");
  }
}

}  // namespace

Scalar min_of(const Scalar& a, const Scalar& b) {
  if (is_nan(a)) return b;
  return is_nan(b) || !less(b, a) ? a : b;
}

Scalar max_of(const Scalar& a, const Scalar& b) {
  if (is_nan(a)) return b;
  return is_nan(b) || !less(a, b) ? a : b;
}

Comparison comparison_of(const Op& op) {
  const std::string& kind = op.word("kind");
  if (kind == "eq") return Comparison::Eq;
  if (kind == "ne") return Comparison::Ne;
  if (kind == "lt") return Comparison::Lt;
  if (kind == "le") return Comparison::Le;
  if (kind == "gt") return Comparison::Gt;
  if (kind == "ge") return Comparison::Ge;
  throw InternalError(op.loc, "unknown comparison '" + kind + "'");
}

Scalar apply(OpCode code, DType result, Comparison comparison, const Scalar* in) {
  switch (code) {
    case OpCode::Add:
    case OpCode::Sub:
    case OpCode::Mul: return arithmetic(code, in[0], in[1]);
    case OpCode::Div: return real(result, in[0].f / in[1].f);
    case OpCode::FloorDiv: return floor_div(in[0], in[1]);
    case OpCode::FloorMod: return floor_mod(in[0], in[1]);
    case OpCode::Fma: return fma(in);
    case OpCode::Min: return min_of(in[0], in[1]);
    case OpCode::Max: return max_of(in[0], in[1]);
    case OpCode::Neg: return negate(in[0]);
    case OpCode::Abs: return absolute(in[0]);
    case OpCode::Compare: return truth(compare(comparison, in[0], in[1]));
    case OpCode::And: return Scalar::of_int(result, in[0].i & in[1].i);
    case OpCode::Or: return Scalar::of_int(result, in[0].i | in[1].i);
    case OpCode::Xor: return Scalar::of_int(result, in[0].i ^ in[1].i);
    case OpCode::Not: return complement(in[0]);
    case OpCode::Shl:
    case OpCode::Shr: return shift(code, in[0], in[1]);
    case OpCode::Select: return in[0].i ? in[1] : in[2];
    case OpCode::Cast: return convert(in[0], result);
    default: return real(result, function(code, in[0].f));
  }
}

Scalar evaluate(const Kernel& kernel, const Op& op, const std::vector<Scalar>& operands) {
  if (op.code == OpCode::Const) return constant_value(kernel, op);
  if (!is_scalar_op(op.code))
    throw InternalError(op.loc, std::string(info(op.code).name) + " is not a scalar op");
  Comparison comparison = op.code == OpCode::Compare ? comparison_of(op) : Comparison::Eq;
  return apply(op.code, kernel.type(op.result).dtype, comparison, operands.data());
}

}  // namespace kiln
