// Accuracy of a GPU thread's functions in units of the last place, against the C library's in long
// double: the LLVM code that we emit, run on the host. Approximate instructions round correctly
// there, so of fast functions this checks what is built around them, and the special values.
#include <fmt/format.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "ir/interp.h"
#include "tests/codegen/device_ops.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/straight_line.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

long double exact(OpCode code, long double x) {
  switch (code) {
    case OpCode::Exp: return std::exp(x);
    case OpCode::Exp2: return std::exp2(x);
    case OpCode::Log: return std::log(x);
    case OpCode::Log2: return std::log2(x);
    case OpCode::Sqrt: return std::sqrt(x);
    case OpCode::Rsqrt: return 1 / std::sqrt(x);
    default: return std::tanh(x);
  }
}

// Of f32 and f64: digits after the first, and the smallest normal exponent.
struct Format {
  int digits, smallest;
};
Format format_of(DType dtype) {
  return dtype == F32 ? Format{23, -126} : Format{52, -1022};
}

bool is_subnormal(DType dtype, long double value) {
  return value != 0 && std::fabs(value) < std::ldexp(1.0L, format_of(dtype).smallest);
}

double error_in_ulp(DType dtype, double got, long double exact) {
  const double rounded = dtype == F32 ? static_cast<float>(exact) : static_cast<double>(exact);
  if (std::isnan(rounded)) return std::isnan(got) ? 0 : kInf;
  if (std::isinf(rounded) || rounded == 0)
    return got == rounded && std::signbit(got) == std::signbit(rounded) ? 0 : kInf;
  if (!std::isfinite(got)) return kInf;
  const Format format = format_of(dtype);
  const int exponent = std::max(format.smallest, std::ilogb(exact));
  return static_cast<double>(std::fabs(got - exact) / std::ldexp(1.0L, exponent - format.digits));
}

// Where the function's result is finite and changes; all orders of magnitude; all around 1.
std::vector<double> sweep(OpCode code, DType dtype) {
  const bool wide = dtype == F64;
  std::vector<double> x = {0.0, -0.0, kInf, -kInf, NAN, 1.0, -1.0, 2.0, 0.5};
  const double end = code == OpCode::Exp    ? (wide ? 750 : 106)
                     : code == OpCode::Exp2 ? (wide ? 1080 : 155)
                     : code == OpCode::Tanh ? 25
                                            : 100;
  for (int i = -20000; i <= 20000; ++i) x.push_back(end * i / 20000);
  for (int e = wide ? -1074 : -149; e < (wide ? 1024 : 128); ++e)
    for (double m = 1; m < 2; m += 0.137)
      for (double sign : {1.0, -1.0}) x.push_back(sign * std::ldexp(m, e));
  for (int e = -40; e < 0; ++e)
    for (int i = -200; i <= 200; ++i) x.push_back(1 + std::ldexp(i * 0.01, e));
  if (!wide)
    for (double& value : x) value = static_cast<float>(value);
  return x;
}

struct Worst {
  double error = 0, at = 0;
};

// Of the code as it is run: cleaned up. Subnormal operands and results are left out if `fast`.
Worst worst_error(const Operation& operation, DType dtype, bool fast) {
  DeviceCode device("sm_80", fast);
  llvm::Function& function = device.function(operation.computation());
  device.clean_up();
  StraightLine code(function);
  Worst worst;
  for (double x : sweep(operation.code(), dtype)) {
    const long double expected = exact(operation.code(), x);
    if (fast && (is_subnormal(dtype, x) || is_subnormal(dtype, expected))) continue;
    const uint64_t in[] = {testing::to_bits(Scalar::of_float(dtype, x))};
    const double error = error_in_ulp(dtype, testing::from_bits(dtype, code(in)).f, expected);
    if (!(error <= worst.error)) worst = {error, x};
  }
  return worst;
}

double quotient(double x, double y, bool fast) {
  Attrs attrs;
  attrs.set("fast", fast);
  const Operation divide(OpCode::Div, {F32, F32}, F32, attrs);
  DeviceCode device("sm_80", fast);
  StraightLine code(device.function(divide.computation()));
  const uint64_t in[] = {testing::to_bits(Scalar::of_float(F32, x)),
                         testing::to_bits(Scalar::of_float(F32, y))};
  return testing::from_bits(F32, code(in)).f;
}

}  // namespace

TEST_CASE("functions of f32 and f64 on a GPU are accurate everywhere", "[nvptx]") {
  for (DType dtype : {F32, F64})
    for (const Operation& operation : functions(dtype, false)) {
      const Worst worst = worst_error(operation, dtype, false);
      INFO(operation.name() << ": " << worst.error << " ulp at " << worst.at);
      CHECK(worst.error <= 2.0);
    }
}

TEST_CASE("fast functions on a GPU keep infinities, zeros and NaN", "[nvptx]") {
  for (const Operation& operation : functions(F32, true)) {
    const Worst worst = worst_error(operation, F32, true);
    INFO(operation.name() << ": " << worst.error << " ulp at " << worst.at);
    // x · log2 e, of up to 128, is rounded before its power is taken.
    CHECK(worst.error <= (operation.code() == OpCode::Exp ? 70.0 : 2.0));
  }
}

TEST_CASE("fast division on a GPU keeps infinities, zeros and NaN", "[nvptx]") {
  const double values[] = {0.0, 1.0, 3.0, 0x1p100, 0x1p-100, 0x1p126, 0x1.8p127, kInf, NAN};
  for (double x : values)
    for (double y : values)
      for (double sign : {1.0, -1.0}) {
        const double expected = static_cast<float>(sign * x / y);
        if (is_subnormal(F32, expected)) continue;
        INFO(x << " / " << sign * y);
        CHECK(error_in_ulp(F32, quotient(x, sign * y, true), expected) <= 2);
      }
}

TEST_CASE("functions of f16 and bf16 on a GPU: the nearest value, or its neighbour", "[nvptx]") {
  for (DType dtype : {F16, BF16})
    for (bool fast : {false, true})
      for (const Operation& operation : functions(dtype, fast)) {
        DeviceCode device("sm_80");
        StraightLine code(device.function(operation.computation()));
        int wrong = 0, rounded_differently = 0;
        for (uint64_t bits = 0; bits < 65536; ++bits) {
          const uint64_t in[] = {bits};
          const Scalar x = testing::from_bits(dtype, bits), expected = operation.expected({x});
          if (fast && (is_subnormal(F32, x.f) || is_subnormal(F32, expected.f))) continue;
          const uint64_t got = code(in);
          if (std::isnan(expected.f)) {
            wrong += !std::isnan(testing::from_bits(dtype, got).f);
          } else {
            const int64_t apart =
                static_cast<int64_t>(got) - static_cast<int64_t>(testing::to_bits(expected));
            rounded_differently += apart != 0;
            wrong += std::abs(apart) > 1 || (!std::isfinite(expected.f) && apart != 0);
          }
        }
        INFO(operation.name());
        CHECK(wrong == 0);
        CHECK(rounded_differently < 500);
      }
}
