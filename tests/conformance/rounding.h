// Rounding of results, apart from the emulator's.
#pragma once

#include <cfenv>
#include <cmath>

#include "ir/dtype.h"
#include "tests/conformance/table.h"

namespace kiln::conformance {

struct Mode {
  const char* name;
  int fenv;
};
inline constexpr Mode kModes[] = {
    {"rn", FE_TONEAREST}, {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};

// compute() in the processor's mode; it must go through volatile variables.
template <class F>
auto in_mode(int mode, F compute) {
  std::fesetround(mode);
  auto result = compute();
  std::fesetround(FE_TONEAREST);
  return result;
}

// a·b + c truncated, with the last bit set if that was inexact: rounding it once more to a type
// that is at least two bits shorter is as if there had been one rounding.
inline double odd_fma(double a, double b, double c) {
  volatile double x = a, y = b, z = c, sum;
  std::feclearexcept(FE_ALL_EXCEPT);
  std::fesetround(FE_TOWARDZERO);
  sum = std::fma(x, y, z);
  bool inexact = std::fetestexcept(FE_INEXACT);
  std::fesetround(FE_TONEAREST);
  return inexact && std::isfinite(sum) ? as<double>(bits<double>(sum) | 1) : double{sum};
}

// The bits of an f16 or bf16: from the nearest, one step where the mode says so.
inline uint64_t to_half(DType type, double value, int mode = FE_TONEAREST) {
  uint16_t nearest = to_bits16(type, value);
  double rounded = from_bits16(type, nearest);
  if (std::isnan(value) || rounded == value) return nearest;
  bool negative = std::signbit(value);
  bool toward_zero = mode == FE_TOWARDZERO || mode == (negative ? FE_UPWARD : FE_DOWNWARD);
  bool away = mode == (negative ? FE_DOWNWARD : FE_UPWARD);
  if (toward_zero && std::abs(rounded) > std::abs(value)) --nearest;
  if (away && std::abs(rounded) < std::abs(value)) ++nearest;
  return nearest;
}
inline double from_half(DType type, uint64_t slot) {
  return from_bits16(type, static_cast<uint16_t>(slot));
}

inline float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
template <class T>
T saturated(T x) {
  return std::isnan(x) || x <= 0 ? T(0) : x > 1 ? T(1) : x;
}

// min and max of PTX: a number wins over NaN, -0 is less than +0.
template <class T>
T least(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? b : a;
  return a == b ? (std::signbit(a) ? a : b) : a < b ? a : b;
}
template <class T>
T greatest(T a, T b) {
  return -least(-a, -b);
}

}  // namespace kiln::conformance
