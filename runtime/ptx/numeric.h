// Floating-point arithmetic as PTX defines it, on one lane; written so that loops over lanes
// vectorise.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace kiln::ptx {

// Bits of a 16-bit float in a register.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
struct HalfPair {
  uint32_t bits;
};
struct BFloatPair {
  uint32_t bits;
};

inline constexpr uint32_t kNaN32 = 0x7fffffff;
inline constexpr uint16_t kNaN16 = 0x7fff;

inline float canonical(float x) {
  return x == x ? x : std::bit_cast<float>(kNaN32);
}
inline double canonical(double x) {
  return x == x ? x : std::numeric_limits<double>::quiet_NaN();
}

// Subnormals to zeros of their sign.
inline float flush(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits);
}

inline float to_float(Half x) {
  uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16;
  uint32_t magnitude = x.bits & 0x7fff;
  // A float with the half's fields, then scaled: subnormals come right by themselves.
  float scaled = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>(0x77800000u);
  uint32_t bits =
      magnitude >= 0x7c00 ? (magnitude << 13) | 0x7f800000 : std::bit_cast<uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}
inline float to_float(BFloat x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

// To nearest, ties to even; NaN is canonical.
inline Half to_half(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
  // Adding 2^(−24+23)·… aligns the bits of a subnormal half at the end of a float's fraction.
  uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
  result = magnitude >= 0x477ff000 ? 0x7c00 : result;
  result = magnitude > 0x7f800000 ? 0x7fff : result;
  sign = magnitude > 0x7f800000 ? 0 : sign;
  return {static_cast<uint16_t>(result | sign)};
}
inline BFloat to_bfloat(float x) {
  uint32_t bits = std::bit_cast<uint32_t>(x);
  uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? kNaN16 : rounded)};
}

// a + b rounded to odd in a double, so that rounding it once more to a narrower type is as one
// rounding of the exact sum.
inline double add_to_odd(double a, double b) {
  double sum = a + b;
  double part = sum - a;
  double error = (a - (sum - part)) + (b - part);
  auto bits = std::bit_cast<int64_t>(sum);
  int64_t step = (error > 0) == (sum > 0) ? 1 : -1;
  bool adjust = (error < 0 || error > 0) && (bits & 1) == 0;
  return std::bit_cast<double>(bits + (adjust ? step : 0));
}

inline float fused(float a, float b, float c) {
  return static_cast<float>(add_to_odd(static_cast<double>(a) * static_cast<double>(b), c));
}

inline Half half_of(double odd) {
  // A double that was rounded to odd may go through a float rounded to odd.
  auto narrow = static_cast<float>(odd);
  auto bits = std::bit_cast<int32_t>(narrow);
  double error = odd - static_cast<double>(narrow);
  bool adjust = (error < 0 || error > 0) && (bits & 1) == 0;
  int32_t step = (error > 0) == (narrow > 0) ? 1 : -1;
  return to_half(std::bit_cast<float>(bits + (adjust ? step : 0)));
}
inline BFloat bfloat_of(double odd) {
  auto narrow = static_cast<float>(odd);
  auto bits = std::bit_cast<int32_t>(narrow);
  double error = odd - static_cast<double>(narrow);
  bool adjust = (error < 0 || error > 0) && (bits & 1) == 0;
  int32_t step = (error > 0) == (narrow > 0) ? 1 : -1;
  return to_bfloat(std::bit_cast<float>(bits + (adjust ? step : 0)));
}

// max and min: a NaN loses unless both are; −0 < +0.
template <class T>
T larger(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  if (a != a) return canonical(b);
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

// [0, 1], NaN to 0.
template <class T>
T saturate(T x) {
  return x > T(0) ? (x < T(1) ? x : T(1)) : T(0);
}

}  // namespace kiln::ptx
