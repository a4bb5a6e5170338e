// Arithmetic of traced values. Operands agree in dtype after lossless widening (f16 and bf16 to
// f32, narrow integers to wide ones); anything else is an error that asks for a cast.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdlib>
#include <type_traits>

#include "dsl/value.h"

namespace kiln {
inline namespace dsl {

// Of C++ numbers these stay C++.
using std::abs;
using std::ceil;
using std::exp;
using std::exp2;
using std::floor;
using std::log;
using std::log2;
using std::sqrt;
using std::tanh;
template <Number T, Number U>
constexpr auto min(T a, U b) {
  using C = std::common_type_t<T, U>;
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <Number T, Number U>
constexpr auto max(T a, U b) {
  using C = std::common_type_t<T, U>;
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
template <std::integral T, std::integral U>
constexpr auto floordiv(T a, U b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
template <std::integral T, std::integral U>
constexpr auto floormod(T a, U b) {
  return a - floordiv(a, b) * b;
}
template <std::integral T, std::integral U>
constexpr auto ceildiv(T a, U b) {
  return a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0);
}

Expr operator+(Arg a, Arg b);
Expr operator-(Arg a, Arg b);
Expr operator*(Arg a, Arg b);
Expr operator/(Arg a, Arg b);  // of integers, floordiv
Expr operator%(Arg a, Arg b);  // of integers, floormod
Expr operator-(Arg a);
Expr operator==(Arg a, Arg b);
Expr operator!=(Arg a, Arg b);
Expr operator<(Arg a, Arg b);
Expr operator<=(Arg a, Arg b);
Expr operator>(Arg a, Arg b);
Expr operator>=(Arg a, Arg b);
Expr operator&(Arg a, Arg b);  // of integers or bools
Expr operator|(Arg a, Arg b);
Expr operator^(Arg a, Arg b);
Expr operator<<(Arg a, Arg b);
Expr operator>>(Arg a, Arg b);
Expr operator~(Arg a);

// Of bools; both sides are evaluated, a C++ bool decides while tracing. Overloads on the exact type
// because the sentence of Expr's conversion to bool is a candidate too.
template <class T>
concept TracedScalar = std::is_base_of_v<Expr, T> || std::is_same_v<T, Var>;
Expr logical_and(Arg a, Arg b);
Expr logical_or(Arg a, Arg b);
Expr logical_not(Arg a);
template <TracedScalar T>
Expr operator&&(const T& a, Arg b) {
  return logical_and(Arg(a, b.loc()), b);
}
template <TracedScalar T, std::same_as<bool> B>
Expr operator&&(const T& a, B b) {
  return logical_and(Arg(a, Tracer::last_loc()), Arg(b, Tracer::last_loc()));
}
template <std::same_as<bool> B, TracedScalar T>
Expr operator&&(B a, const T& b) {
  return b && a;
}
template <TracedScalar T>
Expr operator||(const T& a, Arg b) {
  return logical_or(Arg(a, b.loc()), b);
}
template <TracedScalar T, std::same_as<bool> B>
Expr operator||(const T& a, B b) {
  return logical_or(Arg(a, Tracer::last_loc()), Arg(b, Tracer::last_loc()));
}
template <std::same_as<bool> B, TracedScalar T>
Expr operator||(B a, const T& b) {
  return b || a;
}
template <TracedScalar T>
Expr operator!(const T& a) {
  return logical_not(Arg(a, Tracer::last_loc()));
}

Expr min(Arg a, Arg b);  // if one is NaN, the other
Expr max(Arg a, Arg b);
Expr abs(Arg a);
Expr exp(Arg a);
Expr exp2(Arg a);
Expr log(Arg a);
Expr log2(Arg a);
Expr sqrt(Arg a);
Expr rsqrt(Arg a);
Expr tanh(Arg a);
Expr floor(Arg a);
Expr ceil(Arg a);
Expr fma(Arg a, Arg b, Arg c);  // f32 or f64, rounded once
Expr floordiv(Arg a, Arg b);
Expr floormod(Arg a, Arg b);
Expr ceildiv(Arg a, Arg b);  // a + (b - 1) must not overflow

Expr cast(Arg a, DType dtype);
Expr infinity(DType dtype, Loc loc = Loc::here());
// a where the condition holds, else b; both are evaluated. A C++ bool chooses while tracing.
Expr select(Arg condition, Arg a, Arg b);

}  // namespace dsl
}  // namespace kiln
