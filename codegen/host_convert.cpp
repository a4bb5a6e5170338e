// Conversions. Formats below f32 are rounded by integer arithmetic where the CPU has nothing
// better: never a call an element.
#include <llvm/IR/Intrinsics.h>

#include <cmath>

#include "codegen/host_ops_impl.h"

namespace kiln::host {
namespace {

struct Format {
  int mantissa, bias, bits;
  double largest;
  bool saturates;  // on overflow; else infinity
  bool infinity;   // the format has one
};

Format format_of(DType dtype) {
  switch (dtype) {
    case F16: return {10, 15, 16, 65504.0, false, true};
    case BF16: return {7, 127, 16, 0x1.FEp127, false, true};
    case E4M3: return {3, 7, 8, 448.0, true, false};
    default: return {2, 15, 8, 57344.0, true, true};
  }
}

bool is_small(DType dtype) {
  return is_float(dtype) && size_of(dtype) < 4;
}

// The bits of a wider float, taken apart.
struct Parts {
  llvm::Type *real, *bits;
  int mantissa;
  uint64_t sign_bit, infinity;
  Val sign, magnitude;
};

Parts take_apart(Builder& b, Val value) {
  Parts p;
  p.real = value->getType();
  const bool wide = p.real->getScalarType()->isDoubleTy();
  const int lanes = Builder::lanes_of(value);
  p.bits = Builder::widen(wide ? b.ir.getInt64Ty() : b.ir.getInt32Ty(), lanes);
  p.mantissa = wide ? 52 : 23;
  p.sign_bit = wide ? uint64_t{1} << 63 : uint64_t{1} << 31;
  p.infinity = wide ? uint64_t{0x7FF} << 52 : uint64_t{0xFF} << 23;
  Val bits = b.ir.CreateBitCast(value, p.bits);
  p.sign = b.ir.CreateAnd(bits, b.integer(p.bits, p.sign_bit));
  p.magnitude = b.ir.CreateXor(bits, p.sign);
  return p;
}

uint64_t bits_of(const Parts& p, double value) {
  if (p.mantissa == 52) return std::bit_cast<uint64_t>(value);
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

// |value| of a format's subnormal range as a multiple of the smallest subnormal, still in the bits
// of the sum with a number whose last bit is worth that much: the addition rounds to nearest even.
Val plus_magic(Builder& b, const Parts& p, const Format& format, Val magnitude, double* magic) {
  *magic = std::ldexp(1.0, 1 - format.bias - format.mantissa + p.mantissa);
  Val real = b.ir.CreateBitCast(magnitude, p.real);
  return b.ir.CreateFAdd(real, b.real(p.real, *magic));
}

Val round_small(Builder& b, Val value, const Format& format) {
  auto& ir = b.ir;
  Parts p = take_apart(b, value);
  const int dropped = p.mantissa - format.mantissa;
  auto bits = [&](uint64_t number) { return b.integer(p.bits, number); };
  const uint64_t half = uint64_t{1} << (dropped - 1);

  Val odd = ir.CreateAnd(ir.CreateLShr(p.magnitude, bits(static_cast<uint64_t>(dropped))), bits(1));
  Val result = ir.CreateAdd(ir.CreateAdd(p.magnitude, bits(half - 1)), odd);
  result = ir.CreateAnd(result, bits(~(2 * half - 1)));

  const bool same_exponents = p.mantissa == 23 && format.bias == 127;
  if (!same_exponents) {
    double magic;
    Val sum = plus_magic(b, p, format, p.magnitude, &magic);
    Val small = ir.CreateBitCast(ir.CreateFSub(sum, b.real(p.real, magic)), p.bits);
    const uint64_t smallest_normal = bits_of(p, std::ldexp(1.0, 1 - format.bias));
    result = ir.CreateSelect(ir.CreateICmpULT(p.magnitude, bits(smallest_normal)), small, result);
    const uint64_t largest = bits_of(p, format.largest);
    Val over = ir.CreateICmpUGT(result, bits(largest));
    result = ir.CreateSelect(over, bits(format.saturates ? largest : p.infinity), result);
  }
  // A NaN stays one: quiet, with what its payload keeps.
  const uint64_t quiet = uint64_t{1} << (p.mantissa - 1);
  Val nan = ir.CreateAnd(ir.CreateOr(p.magnitude, bits(quiet)), bits(~(2 * half - 1)));
  result = ir.CreateSelect(ir.CreateICmpUGT(p.magnitude, bits(p.infinity)), nan, result);
  return ir.CreateBitCast(ir.CreateOr(result, p.sign), p.real);
}

Val saturating(Builder& b, Val value, llvm::Type* to, bool is_signed) {
  llvm::Type* types[] = {to, value->getType()};
  return b.ir.CreateIntrinsic(is_signed ? llvm::Intrinsic::fptosi_sat : llvm::Intrinsic::fptoui_sat,
                              types, {value});
}

// A 64-bit integer that rounds to any float of at most 32 bits as `value` does and is exact in f64:
// what lies below the 53rd bit becomes one sticky bit.
Val sticky(Builder& b, Val value, bool is_signed) {
  auto& ir = b.ir;
  auto number = [&](uint64_t n) { return b.integer(value->getType(), n); };
  constexpr uint64_t kLow = (1 << 11) - 1;
  const Val args[] = {value, b.integer(Builder::widen(ir.getInt1Ty(), 1), 0)};
  Val magnitude = is_signed ? b.call(llvm::Intrinsic::abs, args) : value;
  Val lost = ir.CreateICmpNE(ir.CreateAnd(magnitude, number(kLow)), number(0));
  Val kept = ir.CreateOr(ir.CreateAnd(magnitude, number(~kLow)),
                         ir.CreateSelect(lost, number(kLow + 1), number(0)));
  Val large = ir.CreateICmpNE(ir.CreateLShr(magnitude, number(53)), number(0));
  magnitude = ir.CreateSelect(large, kept, magnitude);
  if (!is_signed) return magnitude;
  return ir.CreateSelect(ir.CreateICmpSLT(value, number(0)), ir.CreateNeg(magnitude), magnitude);
}

Val int_to_float(Builder& b, Val value, DType from, DType to) {
  const int lanes = Builder::lanes_of(value);
  const bool is_signed = is_signed_int(from);
  // Into formats below f32 by way of one that holds the integer exactly.
  const bool by_double = is_small(to) && size_of(from) >= 4;
  if (by_double && size_of(from) == 8) value = sticky(b, value, is_signed);
  llvm::Type* type = by_double ? b.ir.getDoubleTy() : b.value_type(to);
  type = Builder::widen(type, lanes);
  Val exact = is_signed ? b.ir.CreateSIToFP(value, type) : b.ir.CreateUIToFP(value, type);
  return is_small(to) ? round_to(b, exact, to) : exact;
}

}  // namespace

Val round_to(Builder& b, Val value, DType to) {
  auto& ir = b.ir;
  const int lanes = Builder::lanes_of(value);
  const bool wide = value->getType()->getScalarType()->isDoubleTy();
  llvm::Type* single = Builder::widen(ir.getFloatTy(), lanes);
  if (to == F64)
    return wide ? value : ir.CreateFPExt(value, Builder::widen(ir.getDoubleTy(), lanes));
  if (to == F32) return wide ? ir.CreateFPTrunc(value, single) : value;
  if (to == F16 && b.target.f16c && !wide) {
    Val half = ir.CreateFPTrunc(value, Builder::widen(ir.getHalfTy(), lanes));
    return ir.CreateFPExt(half, single);
  }
  Val rounded = round_small(b, value, format_of(to));
  if (!wide) return rounded;
  // Fenced: LLVM would merge this step with one to f16, and f64 to f16 is a call on most CPUs.
  const Val exact[] = {ir.CreateFPTrunc(rounded, single)};
  return b.call(llvm::Intrinsic::arithmetic_fence, exact);
}

Val to_bits(Builder& b, Val value, DType dtype) {
  auto& ir = b.ir;
  const int lanes = Builder::lanes_of(value);
  llvm::Type* type = Builder::widen(b.tensor_type(dtype), lanes);
  if (dtype == Bool) return ir.CreateZExt(value, type);
  if (!is_small(dtype)) return value;
  if (dtype == F16 && b.target.f16c) {
    Val half = ir.CreateFPTrunc(value, Builder::widen(ir.getHalfTy(), lanes));
    return ir.CreateBitCast(half, type);
  }
  Parts p = take_apart(b, value);
  auto bits = [&](uint64_t number) { return b.integer(p.bits, number); };
  if (dtype == BF16)
    return ir.CreateTrunc(ir.CreateLShr(ir.CreateOr(p.sign, p.magnitude), bits(16)), type);
  const Format format = format_of(dtype);
  Val code = ir.CreateLShr(p.magnitude, bits(static_cast<uint64_t>(23 - format.mantissa)));
  code = ir.CreateSub(code, bits(static_cast<uint64_t>(127 - format.bias) << format.mantissa));
  double magic;
  Val small = ir.CreateBitCast(plus_magic(b, p, format, p.magnitude, &magic), p.bits);
  small = ir.CreateSub(small, bits(bits_of(p, magic)));
  const uint64_t smallest_normal = bits_of(p, std::ldexp(1.0, 1 - format.bias));
  code = ir.CreateSelect(ir.CreateICmpULT(p.magnitude, bits(smallest_normal)), small, code);
  // Infinity is all ones in the exponent; a NaN that and something below it.
  const uint64_t sign_bit = uint64_t{1} << (format.bits - 1);
  const uint64_t ones = sign_bit - (uint64_t{1} << format.mantissa);
  const uint64_t nan = format.infinity ? ones | uint64_t{1} << (format.mantissa - 1) : sign_bit - 1;
  Val special =
      ir.CreateSelect(ir.CreateICmpUGT(p.magnitude, bits(p.infinity)), bits(nan), bits(ones));
  code = ir.CreateSelect(ir.CreateICmpUGE(p.magnitude, bits(p.infinity)), special, code);
  Val sign = ir.CreateLShr(p.sign, bits(static_cast<uint64_t>(32 - format.bits)));
  return ir.CreateTrunc(ir.CreateOr(code, sign), type);
}

Val from_bits(Builder& b, Val stored, DType dtype) {
  auto& ir = b.ir;
  const int lanes = Builder::lanes_of(stored);
  llvm::Type* single = Builder::widen(ir.getFloatTy(), lanes);
  if (dtype == Bool) return ir.CreateICmpNE(stored, b.integer(stored->getType(), 0));
  if (!is_small(dtype)) return stored;
  if (dtype == F16 && b.target.f16c)
    return ir.CreateFPExt(ir.CreateBitCast(stored, Builder::widen(ir.getHalfTy(), lanes)), single);
  llvm::Type* word = Builder::widen(ir.getInt32Ty(), lanes);
  auto bits = [&](uint64_t number) { return b.integer(word, number); };
  Val wide = ir.CreateZExt(stored, word);
  if (dtype == BF16) return ir.CreateBitCast(ir.CreateShl(wide, bits(16)), single);
  const Format format = format_of(dtype);
  const uint64_t sign_bit = uint64_t{1} << (format.bits - 1);
  const uint64_t ones = sign_bit - (uint64_t{1} << format.mantissa);
  Val code = ir.CreateAnd(wide, bits(sign_bit - 1));
  // The fields moved in place are the value with the wrong bias; a multiplication by a power of two
  // puts that right, for subnormals too.
  Val placed = ir.CreateShl(code, bits(static_cast<uint64_t>(23 - format.mantissa)));
  Val scaled = ir.CreateFMul(ir.CreateBitCast(placed, single),
                             b.real(single, std::ldexp(1.0, 127 - format.bias)));
  Val result = ir.CreateBitCast(scaled, word);
  const uint64_t infinity = uint64_t{0xFF} << 23;
  Val special = format.infinity ? ir.CreateOr(placed, bits(infinity)) : bits(infinity | 1 << 22);
  Val limit = bits(format.infinity ? ones : sign_bit - 1);
  result = ir.CreateSelect(ir.CreateICmpUGE(code, limit), special, result);
  Val sign = ir.CreateShl(ir.CreateAnd(wide, bits(sign_bit)),
                          bits(static_cast<uint64_t>(32 - format.bits)));
  return ir.CreateBitCast(ir.CreateOr(result, sign), single);
}

Val cast(Builder& b, Val value, DType from, DType to) {
  if (from == to) return value;
  auto& ir = b.ir;
  llvm::Type* type = Builder::widen(b.value_type(to), Builder::lanes_of(value));
  if (is_float(from)) {
    if (is_float(to)) return round_to(b, value, to);
    if (to == Bool) return ir.CreateFCmpUNE(value, b.real(value->getType(), 0.0));
    return saturating(b, value, type, is_signed_int(to));
  }
  if (is_float(to)) return int_to_float(b, value, from, to);
  if (to == Bool) return ir.CreateICmpNE(value, b.integer(value->getType(), 0));
  return is_signed_int(from) ? ir.CreateSExtOrTrunc(value, type)
                             : ir.CreateZExtOrTrunc(value, type);
}

}  // namespace kiln::host
