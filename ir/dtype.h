// Element types and their exact conversions. Standard library only: the PTX emulator uses this too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln {

// E4M3 is the OCP 8-bit float without infinities (NaN = S.1111.111, largest 448); E5M2 has them.
enum class DType : uint8_t {
  F16,
  BF16,
  F32,
  F64,
  E4M3,
  E5M2,
  I8,
  I16,
  I32,
  I64,
  U8,
  U16,
  U32,
  U64,
  Bool,
};
using enum DType;

inline constexpr DType kAllDTypes[] = {F16, BF16, F32, F64, E4M3, E5M2, I8,  I16,
                                       I32, I64,  U8,  U16, U32,  U64,  Bool};

std::string_view name(DType dtype);  // "f16", "bf16", …, "bool"
std::optional<DType> dtype_from_name(std::string_view name);

constexpr size_t size_of(DType dtype) {
  switch (dtype) {
    case E4M3:
    case E5M2:
    case I8:
    case U8:
    case Bool: return 1;
    case F16:
    case BF16:
    case I16:
    case U16: return 2;
    case F32:
    case I32:
    case U32: return 4;
    default: return 8;
  }
}
constexpr bool is_float(DType dtype) {
  return dtype <= E5M2;
}
constexpr bool is_signed_int(DType dtype) {
  return dtype >= I8 && dtype <= I64;
}
constexpr bool is_unsigned_int(DType dtype) {
  return dtype >= U8 && dtype <= U64;
}
constexpr bool is_int(DType dtype) {
  return dtype >= I8 && dtype <= U64;
}

// One element's value. Floats of every width are exact in a double; integers are kept in an int64
// (u64 as its bit pattern), Bool as 0 or 1.
struct Scalar {
  DType dtype = I32;
  union {
    int64_t i = 0;
    double f;
  };

  static Scalar of_float(DType dtype, double value);  // rounded to dtype
  static Scalar of_int(DType dtype, int64_t value);   // wrapped to dtype
};

// `value` rounded to the nearest value of a float dtype, ties to even, in one rounding. Overflow
// gives infinity, except E4M3 and E5M2, which saturate to their largest finite value (as
// cvt.rn.satfinite does); NaN stays NaN.
double round_to(DType dtype, double value);

// `value` reduced modulo 2^bits to an integer dtype; Bool is value != 0.
int64_t wrap_to(DType dtype, int64_t value);

// The meaning of op `cast`: float to float rounds as round_to; int to int wraps; int to float
// rounds once; float to int truncates toward zero, saturates at the ends and gives 0 for NaN (as
// cvt.rzi does); to Bool is "!= 0" (NaN is true).
Scalar convert(const Scalar& value, DType to);

// Bit patterns in memory, little endian.
Scalar load_element(DType dtype, const void* address);
void store_element(const Scalar& value, void* address);  // value.dtype gives the width

// Bits of a 16- or 8-bit float, for tables and code that works on bits. Values round as round_to,
// but an infinity that E5M2 holds stays one: storing what was loaded changes nothing.
uint16_t to_bits16(DType dtype, double value);  // F16, BF16
double from_bits16(DType dtype, uint16_t bits);
uint8_t to_bits8(DType dtype, double value);  // E4M3, E5M2
double from_bits8(DType dtype, uint8_t bits);

}  // namespace kiln
