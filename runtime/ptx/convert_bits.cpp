#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>

#include "ir/dtype.h"
#include "runtime/ptx/convert.h"
#include "runtime/ptx/numeric.h"

namespace kiln::ptx {
namespace {

double to_integral(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::Zero: return std::trunc(x);
    case Rounding::Down: return std::floor(x);
    case Rounding::Up: return std::ceil(x);
    case Rounding::NearestAway: return std::round(x);
    case Rounding::Nearest: break;
  }
  return std::nearbyint(x);
}

// What the fields of a float type hold.
struct Format {
  int fraction, least_exponent;
  double largest;
};
Format format_of(Type type) {
  switch (type) {
    case Type::F16: return {10, -14, 65504};
    case Type::BF16: return {7, -126, 0x1.fep127};
    case Type::TF32: return {10, -126, 0x1.ffcp127};
    case Type::E4M3: return {3, -6, 448};
    case Type::E5M2: return {2, -14, 57344};
    case Type::F32: return {23, -126, 0x1.fffffep127};
    default: return {52, -1022, std::numeric_limits<double>::max()};
  }
}

double value_of(Type type, uint64_t bits) {
  switch (type) {
    case Type::F16: return to_float(Half{static_cast<uint16_t>(bits)});
    case Type::BF16: return to_float(BFloat{static_cast<uint16_t>(bits)});
    case Type::E4M3: return from_bits8(kiln::E4M3, static_cast<uint8_t>(bits));
    case Type::E5M2: return from_bits8(kiln::E5M2, static_cast<uint8_t>(bits));
    case Type::F64: return std::bit_cast<double>(bits);
    default: return std::bit_cast<float>(static_cast<uint32_t>(bits));
  }
}

// x is a value of the type.
uint64_t bits_of(Type type, double x) {
  bool nan = x != x;
  switch (type) {
    case Type::F16: return nan ? kNaN16 : to_half(static_cast<float>(x)).bits;
    case Type::BF16: return nan ? kNaN16 : to_bfloat(static_cast<float>(x)).bits;
    case Type::E4M3: return nan ? 0x7f : to_bits8(kiln::E4M3, x);
    case Type::E5M2: return nan ? 0x7f : to_bits8(kiln::E5M2, x);
    case Type::F64: return nan ? 0x7fffffffffffffff : std::bit_cast<uint64_t>(x);
    default: return nan ? kNaN32 : std::bit_cast<uint32_t>(static_cast<float>(x));
  }
}

uint64_t wrap(Type type, uint64_t value) {
  int bits = 8 * bytes_of(type);
  return bits == 64 ? value : value & ((uint64_t{1} << bits) - 1);
}

// The value of an integer type in 64 bits, sign-extended.
uint64_t extended(Type type, uint64_t bits) {
  int unused = 64 - 8 * bytes_of(type);
  if (unused == 0) return bits;
  return is_signed(type) ? static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused)
                         : bits << unused >> unused;
}

uint64_t float_to_integer(const Conversion& how, double x) {
  int bits = 8 * bytes_of(how.to);
  if (x != x)  // what the manual says
    return how.from == Type::F64 || bits == 64 ? uint64_t{1} << (bits - 1) : 0;
  x = to_integral(x, how.rounding);
  double least = is_signed(how.to) ? -std::ldexp(1, bits - 1) : 0;
  double end = std::ldexp(1, is_signed(how.to) ? bits - 1 : bits);  // the first too large
  if (x < least) x = least;
  if (x >= end)
    return wrap(how.to, is_signed(how.to) ? (uint64_t{1} << (bits - 1)) - 1 : ~uint64_t{0});
  return wrap(how.to, is_signed(how.to) ? static_cast<uint64_t>(static_cast<int64_t>(x))
                                        : static_cast<uint64_t>(x));
}

uint64_t integer_to_integer(const Conversion& how, uint64_t bits) {
  uint64_t value = extended(how.from, bits);
  if (!how.saturates) return wrap(how.to, value);
  bool negative = is_signed(how.from) && static_cast<int64_t>(value) < 0;
  int width = 8 * bytes_of(how.to);
  if (!is_signed(how.to)) {
    if (negative) return 0;
    uint64_t most = wrap(how.to, ~uint64_t{0});
    return std::min(value, most);
  }
  uint64_t most = (uint64_t{1} << (width - 1)) - 1;
  if (negative)
    return wrap(how.to, static_cast<uint64_t>(std::max(static_cast<int64_t>(value),
                                                       -static_cast<int64_t>(most) - 1)));
  return std::min(value, most);
}

// An integer to a float in one rounding: a double holds 53 bits of 64, so it is made odd first.
uint64_t integer_to_float(const Conversion& how, uint64_t bits) {
  uint64_t value = extended(how.from, bits);
  bool negative = is_signed(how.from) && static_cast<int64_t>(value) < 0;
  uint64_t magnitude = negative ? 0 - value : value;
  if (value == 0) return 0;  // some compilers' sequences give -0 where rounding is down
  if (how.to == Type::F64) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD, FE_TONEAREST};
    std::fesetround(kModes[static_cast<int>(how.rounding)]);
    volatile uint64_t source = value;
    volatile double result = is_signed(how.from) ? static_cast<double>(static_cast<int64_t>(source))
                                                 : static_cast<double>(source);
    std::fesetround(FE_TONEAREST);
    return std::bit_cast<uint64_t>(double(result));
  }
  if (magnitude >> 53 != 0) {
    int excess = 64 - std::countl_zero(magnitude) - 53;
    uint64_t lost = magnitude & ((uint64_t{1} << excess) - 1);
    magnitude = (magnitude >> excess | (lost != 0)) << excess;
  }
  double x = static_cast<double>(magnitude) * (negative ? -1 : 1);
  Format format = format_of(how.to);
  return bits_of(
      how.to, round_float(x, format.fraction, format.least_exponent, format.largest, how.rounding));
}

uint64_t float_to_float(const Conversion& how, double x) {
  if (how.integral) x = to_integral(x, how.rounding);
  Format format = format_of(how.to);
  bool nan = x != x;
  if (how.relu && !nan && x <= 0) x = 0;
  if (!nan && !how.integral)
    x = round_float(x, format.fraction, format.least_exponent, format.largest, how.rounding);
  if (how.finite && !nan) x = std::clamp(x, -format.largest, format.largest);
  if (how.finite && nan && how.to == Type::TF32) return kNaN32;
  if (how.saturates) x = saturate(x);
  uint64_t bits = bits_of(how.to, x);
  if (how.flushes && how.to == Type::F32)
    bits = std::bit_cast<uint32_t>(flush(std::bit_cast<float>(static_cast<uint32_t>(bits))));
  return bits;
}

bool is_real(Type type) {
  return is_float(type) || type == Type::E4M3 || type == Type::E5M2;
}

}  // namespace

double round_float(double x, int fraction, int least_exponent, double largest, Rounding rounding) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = std::max(std::ilogb(x), least_exponent);
  double unit = std::ldexp(1, exponent - fraction);
  double rounded = to_integral(x / unit, rounding) * unit;
  rounded = std::copysign(rounded, x);
  if (std::fabs(rounded) <= largest) return rounded;
  bool inward = rounding == Rounding::Zero || (rounding == Rounding::Down && x > 0) ||
                (rounding == Rounding::Up && x < 0);
  return std::copysign(inward ? largest : std::numeric_limits<double>::infinity(), x);
}

uint64_t convert_bits(const Conversion& how, uint64_t bits) {
  if (!is_real(how.from))
    return is_real(how.to) ? integer_to_float(how, bits) : integer_to_integer(how, bits);
  double x = value_of(how.from, bits);
  if (how.flushes && how.from == Type::F32) x = flush(static_cast<float>(x));
  return is_real(how.to) ? float_to_float(how, x) : float_to_integer(how, x);
}

}  // namespace kiln::ptx
