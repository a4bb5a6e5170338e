// Floating-point instructions, each against a direct computation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cfenv>
#include <cmath>
#include <limits>

#include "ir/dtype.h"
#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

uint64_t nan_or(float x) {  // f32 has one NaN
  return x != x ? 0x7fffffff : bits(x);
}
uint64_t nan_or(double x) {
  return x != x ? bits(std::numeric_limits<double>::quiet_NaN()) : bits(x);
}
float ftz(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
// One operation in a rounding mode.
template <class F>
auto in_mode(int mode, F f) {
  std::fesetround(mode);
  auto result = f();
  std::fesetround(FE_TONEAREST);
  return result;
}

TEST_CASE("f32 arithmetic") {
  auto x = [](const uint64_t* a, int i) { return as<float>(a[i]); };
  check_op("add.f32 $0, $1, $2;", {4, 4, 4}, [=](auto* a) { return nan_or(x(a, 0) + x(a, 1)); });
  check_op("sub.rn.f32 $0, $1, $2;", {4, 4, 4}, [=](auto* a) { return nan_or(x(a, 0) - x(a, 1)); });
  check_op("mul.ftz.f32 $0, $1, $2;", {4, 4, 4},
           [=](auto* a) { return nan_or(ftz(ftz(x(a, 0)) * ftz(x(a, 1)))); });
  check_op("fma.rn.f32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [=](auto* a) { return nan_or(std::fma(x(a, 0), x(a, 1), x(a, 2))); });
  check_op("fma.rn.ftz.sat.f32 $0, $1, $2, $3;", {4, 4, 4, 4}, [=](auto* a) {
    float y = ftz(std::fma(ftz(x(a, 0)), ftz(x(a, 1)), ftz(x(a, 2))));
    return bits(y > 0 ? std::min(y, 1.0f) : 0.0f);
  });
  check_op("div.rn.f32 $0, $1, $2;", {4, 4, 4}, [=](auto* a) { return nan_or(x(a, 0) / x(a, 1)); });
  check_op("neg.f32 $0, $1;", {4, 4}, [](auto* a) { return a[0] ^ 0x80000000; });
  check_op("abs.ftz.f32 $0, $1;", {4, 4}, [=](auto* a) { return bits(std::fabs(ftz(x(a, 0)))); });
  check_op("copysign.f32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return (a[0] & 0x80000000) | (a[1] & 0x7fffffff); });
}

TEST_CASE("f32 arithmetic with narrower operands") {
  auto x = [](const uint64_t* a, int i) { return as<float>(a[i]); };
  auto half = [](const uint64_t* a, int i) {
    const auto bits = static_cast<uint16_t>(a[i]);
    return static_cast<float>(load_element(F16, &bits).f);
  };
  auto wide = [](const uint64_t* a, int i) { return as<float>(a[i] << 16); };
  check_op("add.rn.f32.f16 $0, $1, $2;", {4, 2, 4},
           [=](auto* a) { return nan_or(half(a, 0) + x(a, 1)); });
  check_op("sub.f32.bf16 $0, $1, $2;", {4, 2, 4},
           [=](auto* a) { return nan_or(wide(a, 0) - x(a, 1)); });
  check_op("fma.rn.f32.f16 $0, $1, $2, $3;", {4, 2, 2, 4},
           [=](auto* a) { return nan_or(std::fma(half(a, 0), half(a, 1), x(a, 2))); });
  check_op("fma.rn.sat.f32.bf16 $0, $1, $2, $3;", {4, 2, 2, 4}, [=](auto* a) {
    const float y = std::fma(wide(a, 0), wide(a, 1), x(a, 2));
    return bits(y > 0 ? std::min(y, 1.0f) : 0.0f);
  });
}

TEST_CASE("f32 in other rounding modes") {
  const std::pair<const char*, int> modes[] = {
      {"rz", FE_TOWARDZERO}, {"rm", FE_DOWNWARD}, {"rp", FE_UPWARD}};
  for (auto [name, mode] : modes) {
    auto v = [](const uint64_t* a, int i) {
      volatile float x = as<float>(a[i]);
      return x;
    };
    std::string suffix = std::string(".") + name + ".f32 ";
    check_op("add" + suffix + "$0, $1, $2;", {4, 4, 4}, [=, mode = mode](auto* a) {
      volatile float x = v(a, 0), y = v(a, 1), z;
      std::fesetround(mode);
      z = x + y;
      std::fesetround(FE_TONEAREST);
      return nan_or(float(z));
    });
    check_op("fma" + suffix + "$0, $1, $2, $3;", {4, 4, 4, 4}, [=, mode = mode](auto* a) {
      return nan_or(in_mode(mode, [&] {
        volatile float z = std::fma(v(a, 0), v(a, 1), v(a, 2));
        return float(z);
      }));
    });
    check_op("sqrt" + suffix + "$0, $1;", {4, 4}, [=, mode = mode](auto* a) {
      return nan_or(in_mode(mode, [&] {
        volatile float z = std::sqrt(v(a, 0));
        return float(z);
      }));
    });
  }
}

TEST_CASE("f32 minima and maxima") {
  auto most = [](float a, float b) {
    if (a != a) return b;
    if (b != b) return a;
    if (a == 0 && b == 0) return std::signbit(a) ? b : a;
    return std::max(a, b);
  };
  auto least = [=](float a, float b) { return -most(-a, -b); };
  auto x = [](const uint64_t* a, int i) { return as<float>(a[i]); };
  check_op("max.f32 $0, $1, $2;", {4, 4, 4},
           [=](auto* a) { return nan_or(most(x(a, 0), x(a, 1))); });
  check_op("min.ftz.f32 $0, $1, $2;", {4, 4, 4},
           [=](auto* a) { return nan_or(least(ftz(x(a, 0)), ftz(x(a, 1)))); });
  check_op("max.NaN.f32 $0, $1, $2;", {4, 4, 4}, [=](auto* a) {
    bool nan = std::isnan(x(a, 0)) || std::isnan(x(a, 1));
    return nan ? 0x7fffffff : nan_or(most(x(a, 0), x(a, 1)));
  });
  check_op("max.f32 $0, $1, $2, $3;", {4, 4, 4, 4},
           [=](auto* a) { return nan_or(most(most(x(a, 0), x(a, 1)), x(a, 2))); });
  check_op("min.xorsign.abs.f32 $0, $1, $2;", {4, 4, 4}, [=](auto* a) {
    float y = least(std::fabs(x(a, 0)), std::fabs(x(a, 1)));
    if (y != y) y = as<float>(0x7fffffff);
    return (bits(y) & 0x7fffffff) | ((a[0] ^ a[1]) & 0x80000000);
  });
}

TEST_CASE("f64 arithmetic") {
  auto x = [](const uint64_t* a, int i) { return as<double>(a[i]); };
  check_op("add.f64 $0, $1, $2;", {8, 8, 8}, [=](auto* a) { return nan_or(x(a, 0) + x(a, 1)); });
  check_op("mul.rn.f64 $0, $1, $2;", {8, 8, 8}, [=](auto* a) { return nan_or(x(a, 0) * x(a, 1)); });
  check_op("fma.rn.f64 $0, $1, $2, $3;", {8, 8, 8, 8},
           [=](auto* a) { return nan_or(std::fma(x(a, 0), x(a, 1), x(a, 2))); });
  check_op("div.rn.f64 $0, $1, $2;", {8, 8, 8}, [=](auto* a) { return nan_or(x(a, 0) / x(a, 1)); });
  check_op("sqrt.rn.f64 $0, $1;", {8, 8}, [=](auto* a) { return nan_or(std::sqrt(x(a, 0))); });
  check_op("neg.f64 $0, $1;", {8, 8}, [](auto* a) { return a[0] ^ uint64_t { 1 } << 63; });
  check_op("setp.ltu.f64 %p1, $1, $2; selp.b64 $0, 1, 0, %p1;", {8, 8, 8},
           [=](auto* a) { return uint64_t{!(x(a, 0) >= x(a, 1))}; });
}

TEST_CASE("comparisons of floats") {
  auto x = [](const uint64_t* a, int i) { return as<float>(a[i]); };
  const std::string rest = ".f32 %p1, $1, $2; selp.b32 $0, 1, 0, %p1;";
  check_op("setp.lt" + rest, {4, 4, 4}, [=](auto* a) { return uint64_t{x(a, 0) < x(a, 1)}; });
  check_op("setp.ne" + rest, {4, 4, 4},
           [=](auto* a) { return uint64_t{x(a, 0) < x(a, 1) || x(a, 0) > x(a, 1)}; });
  check_op("setp.neu" + rest, {4, 4, 4}, [=](auto* a) { return uint64_t{x(a, 0) != x(a, 1)}; });
  check_op("setp.nan" + rest, {4, 4, 4},
           [=](auto* a) { return uint64_t{std::isnan(x(a, 0)) || std::isnan(x(a, 1))}; });
  check_op("setp.geu.ftz" + rest, {4, 4, 4},
           [=](auto* a) { return uint64_t{!(ftz(x(a, 0)) < ftz(x(a, 1)))}; });
  check_op("testp.normal.f32 %p1, $1; selp.b32 $0, 1, 0, %p1;", {4, 4},
           [=](auto* a) { return uint64_t{std::isnormal(x(a, 0))}; });
}

// What a 16-bit float operation gives: computed in f64, which is exact for sums and products of f16
// but not for all of bf16, where a long double is.
template <DType T>
struct Small {
  static double x(uint64_t bits) { return from_bits16(T, static_cast<uint16_t>(bits)); }
  static uint64_t of(long double value) {
    if (value != value) return 0x7fff;
    // Rounded to odd on the way from long double.
    auto narrow = static_cast<double>(value);
    if (narrow != value && std::isfinite(narrow)) {
      auto raw = bits(narrow);
      if ((raw & 1) == 0)
        raw += (std::fabs(value) > std::fabs(static_cast<long double>(narrow))) ? 1 : -1;
      narrow = as<double>(raw);
    }
    return to_bits16(T, narrow);
  }
};

template <DType T>
void check_small(const std::string& type) {
  using S = Small<T>;
  using L = long double;
  check_op("add.rn." + type + " $0, $1, $2;", {2, 2, 2},
           [](auto* a) { return S::of(L{S::x(a[0])} + L{S::x(a[1])}); });
  check_op("sub." + type + " $0, $1, $2;", {2, 2, 2},
           [](auto* a) { return S::of(L{S::x(a[0])} - L{S::x(a[1])}); });
  check_op("mul." + type + " $0, $1, $2;", {2, 2, 2},
           [](auto* a) { return S::of(L{S::x(a[0])} * L{S::x(a[1])}); });
  check_op("neg." + type + " $0, $1;", {2, 2}, [](auto* a) { return a[0] ^ 0x8000; });
  check_op("abs." + type + " $0, $1;", {2, 2}, [](auto* a) { return a[0] & 0x7fff; });
  check_op("setp.gt." + type + " %p1, $1, $2; selp.b16 $0, 1, 0, %p1;", {2, 2, 2},
           [](auto* a) { return uint64_t{S::x(a[0]) > S::x(a[1])}; });
  check_op("max.NaN." + type + "x2 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    uint64_t result = 0;
    for (int shift : {0, 16}) {
      double x = S::x(a[0] >> shift & 0xffff), y = S::x(a[1] >> shift & 0xffff);
      bool first = x > y || (x == y && !std::signbit(x));
      double z = std::isnan(x) || std::isnan(y) ? NAN : first ? x : y;
      result |= S::of(z) << shift;
    }
    return result;
  });
}

TEST_CASE("f16 and bf16 arithmetic") {
  check_small<kiln::F16>("f16");
  check_small<kiln::BF16>("bf16");
  using S = Small<kiln::F16>;
  check_op("fma.rn.f16x2 $0, $1, $2, $3;", {4, 4, 4, 4}, [](auto* a) {
    uint64_t result = 0;
    for (int shift : {0, 16}) {
      auto x = [&](int i) { return static_cast<long double>(S::x(a[i] >> shift & 0xffff)); };
      result |= S::of(x(0) * x(1) + x(2)) << shift;
    }
    return result;
  });
  check_op("fma.rn.relu.f16 $0, $1, $2, $3;", {2, 2, 2, 2}, [](auto* a) {
    auto x = [&](int i) { return static_cast<long double>(S::x(a[i])); };
    long double y = x(0) * x(1) + x(2);
    return y <= 0 ? uint64_t{0} : S::of(y);
  });
}

TEST_CASE("approximate functions are within their errors") {
  auto x = [](const uint64_t* a) { return as<float>(a[0]); };
  check_op("rcp.approx.ftz.f32 $0, $1;", {4, 4},
           [=](auto* a) { return nan_or(ftz(1.0f / ftz(x(a)))); });
  check_op("sqrt.approx.f32 $0, $1;", {4, 4}, [=](auto* a) { return nan_or(std::sqrt(x(a))); });
  check_op("ex2.approx.ftz.f32 $0, $1;", {4, 4}, [=](auto* a) {
    return nan_or(ftz(static_cast<float>(std::exp2(static_cast<double>(ftz(x(a)))))));
  });
  check_op("lg2.approx.f32 $0, $1;", {4, 4}, [=](auto* a) {
    return nan_or(static_cast<float>(std::log2(static_cast<double>(x(a)))));
  });
  check_op("tanh.approx.f32 $0, $1;", {4, 4}, [=](auto* a) {
    return nan_or(static_cast<float>(std::tanh(static_cast<double>(x(a)))));
  });
  check_op("ex2.approx.f16 $0, $1;", {2, 2}, [](auto* a) {
    double y = std::exp2(from_bits16(kiln::F16, static_cast<uint16_t>(a[0])));
    return y != y ? uint64_t{0x7fff} : to_bits16(kiln::F16, static_cast<float>(y));
  });
  check_op("rsqrt.approx.f64 $0, $1;", {8, 8},
           [](auto* a) { return nan_or(1 / std::sqrt(as<double>(a[0]))); });
  // 1/b vanishes beyond 2^126.
  auto output = run_warp(R"(mov.f32 %r1, 0f7F000000; mov.f32 %r2, 0f40400000;
    div.approx.f32 %r3, %r2, 0f7E800000; div.approx.f32 %r4, %r2, 0f7F000000;
    mov.b64 %d2, {%r3, %r4}; st.global.b64 [%d0], %d2;)");
  CHECK(as<float>(output[0] & 0xffffffff) == 3.0f / 0x1p126f);
  CHECK(output[0] >> 32 == 0);
}

}  // namespace
}  // namespace kiln::ptx
