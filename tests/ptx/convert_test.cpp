// cvt, each against a direct computation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "ir/dtype.h"
#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

float f32(uint64_t x) {
  return as<float>(x & 0xffffffff);
}
uint64_t nan_or(float x) {
  return x != x ? 0x7fffffff : bits(x);
}
template <DType T>
uint64_t small(double x) {
  return x != x ? 0x7fff : to_bits16(T, x);
}

TEST_CASE("cvt between integers") {
  check_op("cvt.u32.u16 $0, $1;", {4, 2}, [](auto* a) { return a[0]; });
  check_op("cvt.s32.s16 $0, $1;", {4, 2},
           [](auto* a) { return uint64_t(uint32_t(int32_t{int16_t(a[0])})); });
  check_op("cvt.s32.s8 $0, $1;", {4, 4},
           [](auto* a) { return uint64_t(uint32_t(int32_t{int8_t(a[0])})); });
  check_op("cvt.u64.u32 $0, $1;", {8, 4}, [](auto* a) { return a[0]; });
  check_op("cvt.s64.s32 $0, $1;", {8, 4}, [](auto* a) { return uint64_t(int64_t{int32_t(a[0])}); });
  check_op("cvt.u32.u64 $0, $1;", {4, 8}, [](auto* a) { return a[0] & 0xffffffff; });
  check_op("cvt.u16.u32 $0, $1;", {2, 4}, [](auto* a) { return a[0] & 0xffff; });
  check_op("cvt.u8.u32 $0, $1;", {4, 4}, [](auto* a) { return a[0] & 0xff; });
  check_op("cvt.sat.u8.s32 $0, $1;", {4, 4},
           [](auto* a) { return uint64_t(std::clamp(int32_t(a[0]), 0, 255)); });
  check_op("cvt.sat.s16.u32 $0, $1;", {2, 4},
           [](auto* a) { return std::min<uint64_t>(a[0], 32767); });
  check_op("cvt.pack.sat.s16.s32 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    auto clamp = [](uint64_t x) {
      return uint64_t(uint16_t(std::clamp(int32_t(x), -32768, 32767)));
    };
    return clamp(a[0]) << 16 | clamp(a[1]);
  });
}

TEST_CASE("cvt from integers to floats") {
  check_op("cvt.rn.f32.s32 $0, $1;", {4, 4}, [](auto* a) { return bits(float(int32_t(a[0]))); });
  check_op("cvt.rn.f32.u32 $0, $1;", {4, 4}, [](auto* a) { return bits(float(uint32_t(a[0]))); });
  check_op("cvt.rn.f32.u64 $0, $1;", {4, 8}, [](auto* a) { return bits(float(a[0])); });
  check_op("cvt.rn.f32.s64 $0, $1;", {4, 8}, [](auto* a) { return bits(float(int64_t(a[0]))); });
  check_op("cvt.rn.f64.s64 $0, $1;", {8, 8}, [](auto* a) { return bits(double(int64_t(a[0]))); });
  check_op("cvt.rn.f16.s64 $0, $1;", {2, 8}, [](auto* a) {
    auto x = int64_t(a[0]);
    return std::abs(double(x)) >= 65520 ? (x < 0 ? 0xfc00 : 0x7c00) : small<kiln::F16>(double(x));
  });
  check_op("cvt.rn.bf16.u16 $0, $1;", {2, 2},
           [](auto* a) { return small<kiln::BF16>(double(a[0])); });
  check_op("cvt.rz.f32.u32 $0, $1;", {4, 4}, [](auto* a) {
    auto x = float(uint32_t(a[0]));
    return bits(double(x) > double(a[0]) ? std::nextafter(x, 0.0f) : x);
  });
}

TEST_CASE("cvt from floats to integers saturates, NaN is 0") {
  auto clamp = [](double x, double low, double high) {
    return x != x ? 0 : std::clamp(x, low, high);
  };
  check_op("cvt.rzi.s32.f32 $0, $1;", {4, 4}, [=](auto* a) {
    return uint64_t(uint32_t(int32_t(clamp(std::trunc(f32(a[0])), INT32_MIN, INT32_MAX))));
  });
  check_op("cvt.rni.u32.f32 $0, $1;", {4, 4},
           [=](auto* a) { return uint64_t(clamp(std::nearbyint(f32(a[0])), 0, UINT32_MAX)); });
  check_op("cvt.rmi.ftz.s32.f32 $0, $1;", {4, 4}, [=](auto* a) {
    float x = std::fpclassify(f32(a[0])) == FP_SUBNORMAL ? 0 : f32(a[0]);
    return uint64_t(uint32_t(int32_t(clamp(std::floor(x), INT32_MIN, INT32_MAX))));
  });
  check_op("cvt.rpi.s16.f32 $0, $1;", {2, 4}, [=](auto* a) {
    return uint64_t(uint16_t(int16_t(clamp(std::ceil(f32(a[0])), -32768, 32767))));
  });
  check_op("cvt.rzi.s64.f64 $0, $1;", {8, 8}, [](auto* a) {
    auto x = as<double>(a[0]);
    if (x != x) return uint64_t{1} << 63;
    if (x >= 0x1p63) return uint64_t{INT64_MAX};
    if (x < -0x1p63) return uint64_t(INT64_MIN);
    return uint64_t(int64_t(x));
  });
  check_op("cvt.rzi.u64.f32 $0, $1;", {8, 4}, [](auto* a) {
    float x = f32(a[0]);
    if (x != x) return uint64_t{1} << 63;
    if (x <= 0) return uint64_t{0};
    return x >= 0x1p64f ? ~uint64_t{0} : uint64_t(x);
  });
}

TEST_CASE("cvt between floats") {
  check_op("cvt.f32.f16 $0, $1;", {4, 2},
           [](auto* a) { return nan_or(float(from_bits16(kiln::F16, uint16_t(a[0])))); });
  check_op("cvt.f32.bf16 $0, $1;", {4, 2},
           [](auto* a) { return nan_or(float(from_bits16(kiln::BF16, uint16_t(a[0])))); });
  check_op("cvt.rn.f16.f32 $0, $1;", {2, 4}, [](auto* a) { return small<kiln::F16>(f32(a[0])); });
  check_op("cvt.rn.bf16.f32 $0, $1;", {2, 4}, [](auto* a) { return small<kiln::BF16>(f32(a[0])); });
  check_op("cvt.rn.f16x2.f32 $0, $1, $2;", {4, 4, 4},
           [](auto* a) { return small<kiln::F16>(f32(a[0])) << 16 | small<kiln::F16>(f32(a[1])); });
  check_op("cvt.rn.bf16x2.f32 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    return small<kiln::BF16>(f32(a[0])) << 16 | small<kiln::BF16>(f32(a[1]));
  });
  check_op("cvt.rn.relu.bf16x2.f32 $0, $1, $2;", {4, 4, 4}, [](auto* a) {
    auto relu = [](float x) { return x <= 0 ? 0 : small<kiln::BF16>(x); };
    return relu(f32(a[0])) << 16 | relu(f32(a[1]));
  });
  check_op("cvt.f64.f32 $0, $1;", {8, 4}, [](auto* a) {
    float x = f32(a[0]);
    return x != x ? 0x7fffffffffffffff : bits(double(x));
  });
  check_op("cvt.rn.f32.f64 $0, $1;", {4, 8},
           [](auto* a) { return nan_or(float(as<double>(a[0]))); });
  check_op("cvt.rz.f16.f32 $0, $1;", {2, 4}, [](auto* a) {
    float x = f32(a[0]);
    if (x != x) return uint64_t{0x7fff};
    if (std::isinf(x)) return uint64_t(x > 0 ? 0x7c00 : 0xfc00);
    if (std::fabs(x) > 65504) return uint64_t(x > 0 ? 0x7bff : 0xfbff);
    double unit = std::ldexp(1, std::max(std::ilogb(x), -14) - 10);
    if (x == 0) unit = 1;
    return uint64_t(to_bits16(kiln::F16, std::copysign(std::trunc(x / unit) * unit, x)));
  });
  check_op("cvt.rmi.f32.f32 $0, $1;", {4, 4},
           [](auto* a) { return nan_or(std::floor(f32(a[0]))); });
  check_op("cvt.rni.ftz.f32.f32 $0, $1;", {4, 4},
           [](auto* a) { return nan_or(std::nearbyint(f32(a[0]))); });
  check_op("cvt.sat.f32.f32 $0, $1;", {4, 4}, [](auto* a) {
    float x = f32(a[0]);
    return bits(x > 0 ? std::min(x, 1.0f) : 0.0f);
  });
  check_op("cvt.rna.tf32.f32 $0, $1;", {4, 4}, [](auto* a) {
    if (f32(a[0]) != f32(a[0])) return uint64_t{0x7fffffff};
    if (std::isinf(f32(a[0]))) return a[0];
    return (a[0] + 0x1000) & 0xffffe000;
  });
}

TEST_CASE("cvt of 8-bit floats") {
  auto tiny = [](DType type, float x) {
    return x != x ? uint64_t{0x7f} : uint64_t{to_bits8(type, x)};
  };
  check_op("cvt.rn.satfinite.e4m3x2.f32 $0, $1, $2;", {2, 4, 4},
           [=](auto* a) { return tiny(kiln::E4M3, f32(a[0])) << 8 | tiny(kiln::E4M3, f32(a[1])); });
  check_op("cvt.rn.satfinite.e5m2x2.f32 $0, $1, $2;", {2, 4, 4}, [=](auto* a) {
    auto to = [=](float x) {  // an infinity is finite here
      return tiny(kiln::E5M2, std::isinf(x) ? std::copysign(57344.0f, x) : x);
    };
    return to(f32(a[0])) << 8 | to(f32(a[1]));
  });
  check_op("cvt.rn.satfinite.e4m3x2.f16x2 $0, $1;", {2, 4}, [=](auto* a) {
    auto to = [=](uint64_t x) {
      return tiny(kiln::E4M3, float(from_bits16(kiln::F16, uint16_t(x))));
    };
    return to(a[0] >> 16) << 8 | to(a[0] & 0xffff);
  });
  for (DType type : {kiln::E4M3, kiln::E5M2})
    check_op(type == kiln::E4M3 ? "cvt.rn.f16x2.e4m3x2 $0, $1;" : "cvt.rn.f16x2.e5m2x2 $0, $1;",
             {4, 2}, [=](auto* a) {
               auto from = [=](uint64_t x) {
                 return small<kiln::F16>(from_bits8(type, uint8_t(x)));
               };
               return from(a[0] >> 8) << 16 | from(a[0] & 0xff);
             });
}

}  // namespace
}  // namespace kiln::ptx
