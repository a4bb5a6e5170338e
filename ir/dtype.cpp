#include "ir/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace kiln {
namespace {

constexpr std::string_view kNames[] = {"f16", "bf16", "f32", "f64", "e4m3", "e5m2", "i8",  "i16",
                                       "i32", "i64",  "u8",  "u16", "u32",  "u64",  "bool"};
static_assert(std::size(kNames) == std::size(kAllDTypes));

// A float of at most 16 bits: sign, exponent, mantissa. Codes above `largest` (sign aside) are the
// infinity, if the format has one, and NaNs.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  uint32_t largest;  // code of the largest finite value
  bool saturates;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t quiet_nan() const { return sign_bit() - (1u << (mantissa_bits - 1)); }
};

constexpr Format kF16 = {5, 10, 0x7BFF, false};
constexpr Format kBF16 = {8, 7, 0x7F7F, false};
constexpr Format kE4M3 = {4, 3, 0x7E, true};
constexpr Format kE5M2 = {5, 2, 0x7B, true};

constexpr int kDoubleMantissa = 52;
constexpr int kDoubleBias = 1023;
constexpr uint64_t kDoubleImplicit = uint64_t{1} << kDoubleMantissa;
constexpr uint64_t kDoubleInfinity = uint64_t{0x7FF} << kDoubleMantissa;

bool has_infinity(const Format& format) {
  return format.largest + 1 < format.quiet_nan();
}

const Format& format_of(DType dtype) {
  switch (dtype) {
    case F16: return kF16;
    case BF16: return kBF16;
    case E4M3: return kE4M3;
    default: return kE5M2;
  }
}

// Works on the bits so that the result depends on no rounding mode and is rounded once.
uint32_t encode(const Format& format, double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const uint64_t magnitude = bits & ~(uint64_t{1} << 63);
  const uint32_t sign = bits >> 63 ? format.sign_bit() : 0;
  const int dropped = kDoubleMantissa - format.mantissa_bits;
  if (magnitude > kDoubleInfinity) {  // the payload's upper bits survive, as in hardware
    if (!has_infinity(format)) return sign | (format.sign_bit() - 1);
    const uint32_t payload = static_cast<uint32_t>((magnitude - kDoubleInfinity) >> dropped);
    return sign | format.quiet_nan() | payload;
  }

  const int exponent = static_cast<int>(magnitude >> kDoubleMantissa) - kDoubleBias;
  const int smallest = 1 - format.bias();  // exponent of subnormals
  const int shift = dropped + std::max(0, smallest - exponent);
  if (shift > kDoubleMantissa + 1) return sign;  // below half of the smallest subnormal
  const uint64_t significand = (magnitude & (kDoubleImplicit - 1)) | kDoubleImplicit;
  uint64_t kept = significand >> shift;
  const uint64_t rest = significand - (kept << shift);
  const uint64_t half = uint64_t{1} << (shift - 1);
  if (rest > half || (rest == half && kept % 2 == 1)) ++kept;
  // The implicit bit, and a carry out of the rounding, add one to the exponent field.
  const uint64_t field = static_cast<uint64_t>(std::max(exponent, smallest) - smallest);
  const uint64_t code = (field << format.mantissa_bits) + kept;
  if (code <= format.largest) return sign | static_cast<uint32_t>(code);
  return sign | (format.saturates ? format.largest : format.largest + 1);
}

double decode(const Format& format, uint32_t bits) {
  const double sign = bits & format.sign_bit() ? -1.0 : 1.0;
  const uint32_t code = bits & (format.sign_bit() - 1);
  const int scale = kDoubleMantissa - format.mantissa_bits;
  const uint64_t mantissa = code & ((1u << format.mantissa_bits) - 1);
  const uint64_t exponent = code >> format.mantissa_bits;
  uint64_t result;
  if (code > format.largest) {
    const bool infinite = has_infinity(format) && mantissa == 0;
    const uint64_t quiet = infinite ? 0 : kDoubleImplicit >> 1;
    result = kDoubleInfinity | quiet | (mantissa << scale);
  } else if (exponent == 0) {
    return sign *
           std::ldexp(static_cast<double>(mantissa), 1 - format.bias() - format.mantissa_bits);
  } else {
    const uint64_t field = exponent + static_cast<uint64_t>(kDoubleBias - format.bias());
    result = (field << kDoubleMantissa) | (mantissa << scale);
  }
  return std::copysign(std::bit_cast<double>(result), sign);
}

// Bits of an exact value. Storing does not saturate what a tile legally holds: E5M2's infinities.
uint32_t encode_value(DType dtype, double value) {
  const Format& format = format_of(dtype);
  if (std::isinf(value) && has_infinity(format))
    return (std::signbit(value) ? format.sign_bit() : 0) | (format.largest + 1);
  return encode(format, value);
}

int bits_of(DType dtype) {
  return static_cast<int>(8 * size_of(dtype));
}

// An integer that rounds to any float of at most 32 bits as `magnitude` does, and is exact as a
// double: the bits below the 53rd become one sticky bit.
double sticky(uint64_t magnitude) {
  constexpr uint64_t low = (1 << 11) - 1;
  if (magnitude >> 53) magnitude = (magnitude & ~low) | (magnitude & low ? low + 1 : 0);
  return static_cast<double>(magnitude);
}

double int_to_float(const Scalar& value, DType to) {
  const bool negative = value.dtype != U64 && value.i < 0;
  const uint64_t bits = static_cast<uint64_t>(value.i);
  const uint64_t magnitude = negative ? 0 - bits : bits;
  const double rounded =
      to == F64 ? static_cast<double>(magnitude) : round_to(to, sticky(magnitude));
  return negative ? -rounded : rounded;
}

int64_t float_to_int(double value, DType to) {
  if (std::isnan(value)) return 0;
  const int magnitude_bits = bits_of(to) - (is_signed_int(to) ? 1 : 0);
  const double end = std::ldexp(1.0, magnitude_bits);  // one above the largest
  const uint64_t largest = ~uint64_t{0} >> (64 - magnitude_bits);
  if (value >= end) return static_cast<int64_t>(largest);
  if (is_unsigned_int(to))
    return value <= 0 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(value));
  if (value <= -end) return -static_cast<int64_t>(largest) - 1;
  return static_cast<int64_t>(value);
}

template <class T>
T read(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <class T>
void write(void* address, T value) {
  std::memcpy(address, &value, sizeof(T));
}

Scalar integer(DType dtype, int64_t value) {
  Scalar scalar;
  scalar.dtype = dtype;
  scalar.i = value;
  return scalar;
}

Scalar floating(DType dtype, double value) {
  Scalar scalar;
  scalar.dtype = dtype;
  scalar.f = value;
  return scalar;
}

}  // namespace

std::string_view name(DType dtype) {
  return kNames[static_cast<size_t>(dtype)];
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType dtype : kAllDTypes)
    if (kiln::name(dtype) == name) return dtype;
  return std::nullopt;
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case F32: return static_cast<double>(static_cast<float>(value));
    case F16:
    case BF16:
    case E4M3:
    case E5M2: return decode(format_of(dtype), encode(format_of(dtype), value));
    default: return value;
  }
}

int64_t wrap_to(DType dtype, int64_t value) {
  switch (dtype) {
    case I8: return static_cast<int8_t>(value);
    case I16: return static_cast<int16_t>(value);
    case I32: return static_cast<int32_t>(value);
    case U8: return static_cast<uint8_t>(value);
    case U16: return static_cast<uint16_t>(value);
    case U32: return static_cast<uint32_t>(value);
    case Bool: return value != 0;
    default: return value;
  }
}

Scalar Scalar::of_float(DType dtype, double value) {
  return convert(floating(F64, value), dtype);
}

Scalar Scalar::of_int(DType dtype, int64_t value) {
  return convert(integer(I64, value), dtype);
}

Scalar convert(const Scalar& value, DType to) {
  if (value.dtype == to) return value;
  if (is_float(value.dtype)) {
    if (is_float(to)) return floating(to, round_to(to, value.f));
    if (to == Bool) return integer(Bool, value.f != 0);
    return integer(to, float_to_int(value.f, to));
  }
  if (is_float(to)) return floating(to, int_to_float(value, to));
  return integer(to, wrap_to(to, value.i));
}

Scalar load_element(DType dtype, const void* address) {
  switch (dtype) {
    case F16:
    case BF16: return floating(dtype, from_bits16(dtype, read<uint16_t>(address)));
    case E4M3:
    case E5M2: return floating(dtype, from_bits8(dtype, read<uint8_t>(address)));
    case F32: return floating(dtype, static_cast<double>(read<float>(address)));
    case F64: return floating(dtype, read<double>(address));
    case I8: return integer(dtype, read<int8_t>(address));
    case I16: return integer(dtype, read<int16_t>(address));
    case I32: return integer(dtype, read<int32_t>(address));
    case U8: return integer(dtype, read<uint8_t>(address));
    case U16: return integer(dtype, read<uint16_t>(address));
    case U32: return integer(dtype, read<uint32_t>(address));
    case Bool: return integer(dtype, read<uint8_t>(address) != 0);
    case I64:
    case U64: break;
  }
  return integer(dtype, read<int64_t>(address));
}

void store_element(const Scalar& value, void* address) {
  switch (value.dtype) {
    case F16:
    case BF16: return write(address, to_bits16(value.dtype, value.f));
    case E4M3:
    case E5M2: return write(address, to_bits8(value.dtype, value.f));
    case F32: return write(address, static_cast<float>(value.f));
    case F64: return write(address, value.f);
    case I8:
    case U8:
    case Bool: return write(address, static_cast<uint8_t>(value.i));
    case I16:
    case U16: return write(address, static_cast<uint16_t>(value.i));
    case I32:
    case U32: return write(address, static_cast<uint32_t>(value.i));
    case I64:
    case U64: return write(address, value.i);
  }
}

uint16_t to_bits16(DType dtype, double value) {
  return static_cast<uint16_t>(encode_value(dtype, value));
}

double from_bits16(DType dtype, uint16_t bits) {
  return decode(format_of(dtype), bits);
}

uint8_t to_bits8(DType dtype, double value) {
  return static_cast<uint8_t>(encode_value(dtype, value));
}

double from_bits8(DType dtype, uint8_t bits) {
  return decode(format_of(dtype), bits);
}

}  // namespace kiln
