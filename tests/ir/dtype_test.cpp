#include "ir/dtype.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace kiln;

namespace {

constexpr DType kSmallFloats[] = {F16, BF16, E4M3, E5M2};
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

uint32_t to_bits(DType dtype, double value) {
  return size_of(dtype) == 2 ? to_bits16(dtype, value) : to_bits8(dtype, value);
}
double from_bits(DType dtype, uint32_t bits) {
  return size_of(dtype) == 2 ? from_bits16(dtype, static_cast<uint16_t>(bits))
                             : from_bits8(dtype, static_cast<uint8_t>(bits));
}
uint32_t codes(DType dtype) {
  return 1u << (8 * size_of(dtype));
}

// What the formats' definitions say, written out independently of the code under test.
double by_definition(DType dtype, uint32_t bits) {
  const int mantissa_bits = dtype == F16 ? 10 : dtype == BF16 ? 7 : dtype == E4M3 ? 3 : 2;
  const int exponent_bits = static_cast<int>(8 * size_of(dtype)) - 1 - mantissa_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const uint32_t mantissa = bits % (1u << mantissa_bits);
  const uint32_t exponent = (bits >> mantissa_bits) % (1u << exponent_bits);
  const double sign = bits >= codes(dtype) / 2 ? -1 : 1;
  const bool top = exponent == (1u << exponent_bits) - 1;
  if (dtype == E4M3 && top && mantissa == 7) return kNaN;
  if (dtype != E4M3 && top) return mantissa ? kNaN : sign * kInf;
  const double fraction = mantissa / std::pow(2.0, mantissa_bits);
  return exponent == 0 ? sign * fraction * std::pow(2.0, 1 - bias)
                       : sign * (1 + fraction) * std::pow(2.0, static_cast<int>(exponent) - bias);
}

// Rounds by looking at the two neighbours among all non-negative values.
class SlowRounding {
 public:
  explicit SlowRounding(DType dtype) : dtype_(dtype) {
    for (uint32_t bits = 0; std::isfinite(by_definition(dtype, bits)); ++bits)
      values_.push_back(by_definition(dtype, bits));
  }

  double operator()(double value) const {
    if (std::isnan(value)) return value;
    const double magnitude = std::fabs(value);
    const double largest = values_.back();
    const double below_largest = values_[values_.size() - 2];
    const double overflow = largest + (largest - below_largest) / 2;
    double rounded;
    if (magnitude >= largest) {
      rounded = size_of(dtype_) == 1 || magnitude < overflow ? largest : kInf;
    } else {
      size_t low = 0, high = values_.size() - 1;
      while (high - low > 1)
        (values_[(low + high) / 2] <= magnitude ? low : high) = (low + high) / 2;
      const double down = magnitude - values_[low], up = values_[high] - magnitude;
      rounded = values_[down < up || (down == up && low % 2 == 0) ? low : high];
    }
    return std::copysign(rounded, value);
  }

 private:
  DType dtype_;
  std::vector<double> values_;
};

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

Scalar scalar(DType dtype, double value) {
  Scalar s;
  s.dtype = dtype;
  s.f = value;
  return s;
}
Scalar scalar(DType dtype, int64_t value) {
  Scalar s;
  s.dtype = dtype;
  s.i = value;
  return s;
}

uint64_t random_seed() {
  const char* given = std::getenv("KILN_SEED");
  return given ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

}  // namespace

TEST_CASE("names of dtypes read back") {
  for (DType dtype : kAllDTypes) CHECK(dtype_from_name(name(dtype)) == dtype);
  CHECK_FALSE(dtype_from_name("f8"));
  CHECK_FALSE(dtype_from_name(""));
  CHECK(name(BF16) == "bf16");
  CHECK(name(Bool) == "bool");
}

TEST_CASE("every code of the small floats means what the format says and survives a round trip") {
  for (DType dtype : kSmallFloats) {
    for (uint32_t bits = 0; bits < codes(dtype); ++bits) {
      const double value = from_bits(dtype, bits);
      if (!same(value, by_definition(dtype, bits))) FAIL(name(dtype) << " code " << bits);
      const uint32_t back = to_bits(dtype, value);
      if (std::isnan(value)) {
        // Quiet NaNs keep their bits; signalling ones become quiet, as in hardware.
        const uint32_t quiet_bit = dtype == F16 ? 0x200 : dtype == BF16 ? 0x40 : 2;
        if (back != (bits | quiet_bit)) FAIL(name(dtype) << " NaN " << bits << " gave " << back);
      } else {
        if (back != bits) FAIL(name(dtype) << " code " << bits << " gave " << back);
      }
    }
  }
}

TEST_CASE("every small float, its midpoints and their neighbours round to nearest even") {
  for (DType dtype : kSmallFloats) {
    const SlowRounding slow(dtype);
    auto check = [&](double value) {
      for (double x : {value, -value})
        if (!same(round_to(dtype, x), slow(x)))
          FAIL(name(dtype) << ": " << x << " gave " << round_to(dtype, x) << ", not " << slow(x));
    };
    for (uint32_t bits = 0; std::isfinite(by_definition(dtype, bits)); ++bits) {
      const double value = by_definition(dtype, bits);
      const double next = by_definition(dtype, bits + 1);
      const double midpoint = std::isfinite(next) ? value + (next - value) / 2 : value * 1.02;
      for (double x : {value, midpoint}) {
        check(x);
        check(std::nextafter(x, kInf));
        check(std::nextafter(x, -kInf));
      }
    }
    for (double x : {0.0, kInf, kNaN, 1e300, 1e-300, 5e-324, 65519.999, 65520.0, 448.0, 464.0,
                     465.0, 57344.0, 61440.0, 3.3961775292304957e38, 3.39617752923049e38})
      check(x);
  }
}

TEST_CASE("random doubles round to nearest even") {
  const uint64_t seed = random_seed();
  INFO("KILN_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (DType dtype : kSmallFloats) {
    const SlowRounding slow(dtype);
    for (int i = 0; i < 200000; ++i) {
      // Exponents from below the smallest subnormal to above the largest value.
      const int exponent = static_cast<int>(random() % 300) - 150;
      const double value = std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52,
                                      dtype == BF16 ? exponent : exponent / 5);
      if (!same(round_to(dtype, value), slow(value))) FAIL(name(dtype) << " " << value);
    }
  }
}

#ifdef __FLT16_MANT_DIG__
TEST_CASE("f16 agrees with the compiler's _Float16") {
  const uint64_t seed = random_seed();
  INFO("KILN_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = std::bit_cast<_Float16>(static_cast<uint16_t>(bits));
    if (!same(from_bits16(F16, static_cast<uint16_t>(bits)), static_cast<double>(half)))
      FAIL("code " << bits);
  }
  for (int i = 0; i < 300000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    const auto half = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    if (!std::isnan(value) && to_bits16(F16, value) != half) FAIL(value);
  }
}
#endif

TEST_CASE("f32 rounds once and f64 not at all") {
  CHECK(round_to(F32, 0.1) == static_cast<double>(0.1f));
  CHECK(round_to(F32, 1 + 0x1p-24) == 1);
  CHECK(round_to(F32, 1 + 0x3p-24) == 1 + 0x1p-22);
  CHECK(round_to(F32, 1e300) == kInf);
  CHECK(round_to(F32, 0x1p-150) == 0);
  CHECK(round_to(F32, 0x1.8p-149) == 0x1p-148);
  CHECK(round_to(F64, 0.1) == 0.1);
  CHECK(std::isnan(round_to(F32, kNaN)));
}

TEST_CASE("fp8 saturates when rounding and keeps infinities when storing") {
  CHECK(round_to(E4M3, 1e9) == 448);
  CHECK(round_to(E4M3, -kInf) == -448);
  CHECK(round_to(E5M2, 1e9) == 57344);
  CHECK(round_to(E5M2, kInf) == 57344);
  CHECK(convert(scalar(F32, -kInf), E5M2).f == -57344);
  CHECK(std::isnan(round_to(E4M3, kNaN)));
  CHECK(to_bits8(E4M3, kNaN) == 0x7F);
  CHECK(to_bits8(E5M2, kInf) == 0x7C);
  CHECK(convert(scalar(E5M2, kInf), E5M2).f == kInf);
  CHECK(to_bits8(E4M3, kInf) == 0x7E);
  CHECK(round_to(F16, 65519.99) == 65504);
  CHECK(round_to(F16, 65520) == kInf);
}

TEST_CASE("wrap_to and convert wrap integers") {
  CHECK(wrap_to(I8, 200) == -56);
  CHECK(wrap_to(U8, -1) == 255);
  CHECK(wrap_to(I16, 40000) == 40000 - 65536);
  CHECK(wrap_to(U16, 65536 + 7) == 7);
  CHECK(wrap_to(I32, int64_t{1} << 31) == -(int64_t{1} << 31));
  CHECK(wrap_to(U32, -1) == 0xFFFFFFFF);
  CHECK(wrap_to(I64, -1) == -1);
  CHECK(wrap_to(U64, -1) == -1);
  CHECK(wrap_to(Bool, 2) == 1);
  CHECK(convert(scalar(U64, int64_t{-1}), I8).i == -1);
  CHECK(convert(scalar(I32, int64_t{-1}), U64).i == -1);
  CHECK(convert(scalar(I32, int64_t{-1}), U32).i == 0xFFFFFFFF);
  CHECK(convert(scalar(I32, int64_t{256}), Bool).i == 1);
  CHECK(convert(scalar(Bool, int64_t{1}), I64).i == 1);
}

TEST_CASE("convert truncates and saturates floats to integers") {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  struct Case {
    double value;
    DType to;
    int64_t expected;
  };
  const Case cases[] = {
      {2.9, I32, 2},
      {-2.9, I32, -2},
      {-0.5, U8, 0},
      {-7, U32, 0},
      {127.9, I8, 127},
      {128, I8, 127},
      {-128.9, I8, -128},
      {-129, I8, -128},
      {255.5, U8, 255},
      {256, U8, 255},
      {3e9, I32, 2147483647},
      {3e9, U32, 3000000000},
      {-3e9, I32, -2147483648},
      {kInf, I64, kMax},
      {-kInf, I64, kMin},
      {9.3e18, I64, kMax},
      {-0x1p63, I64, kMin},
      {0x1p63, U64, kMin},
      {1.9e19, U64, -1},
      {kInf, U64, -1},
      {-kInf, U64, 0},
      {0x1.fffffffffffffp62, I64, kMax - 1023},
      {kNaN, I32, 0},
      {kNaN, U64, 0},
      {kNaN, Bool, 1},
      {0.0, Bool, 0},
      {-0.0, Bool, 0},
      {0.25, Bool, 1},
      {40000, I16, 32767},
      {70000, U16, 65535},
  };
  for (const Case& c : cases) {
    INFO(c.value << " to " << name(c.to));
    const Scalar result = convert(scalar(F64, c.value), c.to);
    CHECK(result.i == c.expected);
    CHECK(result.dtype == c.to);
  }
}

TEST_CASE("convert rounds integers once to floats") {
  // Just above a midpoint of bf16, by one part in 2^62: through a double it would look like the
  // midpoint and go down to even.
  const int64_t above = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  CHECK(convert(scalar(I64, above), BF16).f == 0x1p62 * (1 + 0x1p-7));
  CHECK(convert(scalar(I64, above - 1), BF16).f == 0x1p62);
  CHECK(convert(scalar(I64, -above), BF16).f == -0x1p62 * (1 + 0x1p-7));
  const int64_t above32 = (int64_t{1} << 62) + (int64_t{1} << 38) + 1;
  CHECK(convert(scalar(I64, above32), F32).f == static_cast<double>(static_cast<float>(above32)));
  CHECK(convert(scalar(I64, above32), F32).f > 0x1p62);
  CHECK(convert(scalar(U64, int64_t{-1}), F64).f == 0x1p64);
  CHECK(convert(scalar(U64, int64_t{-1}), F32).f == 0x1p64);
  CHECK(convert(scalar(I64, std::numeric_limits<int64_t>::min()), F64).f == -0x1p63);
  CHECK(convert(scalar(I64, std::numeric_limits<int64_t>::max()), F64).f == 0x1p63);
  CHECK(convert(scalar(I64, (int64_t{1} << 53) + 1), F64).f == 0x1p53);
  CHECK(convert(scalar(I32, int64_t{70000}), F16).f == kInf);
  CHECK(convert(scalar(I32, int64_t{-70000}), E4M3).f == -448);
  CHECK(convert(scalar(I32, int64_t{2049}), F16).f == 2048);
  CHECK(same(convert(scalar(I32, int64_t{0}), F16).f, 0.0));
  CHECK(Scalar::of_int(F32, 3).f == 3);
  CHECK(Scalar::of_int(U8, 257).i == 1);
  CHECK(Scalar::of_float(F16, 0.1).f == 0.0999755859375);

  const uint64_t seed = random_seed();
  INFO("KILN_SEED=" << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 200000; ++i) {
    const auto value = static_cast<int64_t>(random()) >> (random() % 64);
    if (convert(scalar(I64, value), F32).f != static_cast<double>(static_cast<float>(value)))
      FAIL(value);
    const auto bits = static_cast<uint64_t>(value);
    if (convert(scalar(U64, value), F32).f != static_cast<double>(static_cast<float>(bits)))
      FAIL(bits);
  }
}

TEST_CASE("elements are stored little endian and read back") {
  for (DType dtype : kAllDTypes) {
    unsigned char bytes[10];
    std::memset(bytes, 0xAB, sizeof(bytes));
    const Scalar one = is_float(dtype) ? Scalar::of_float(dtype, 1.5) : Scalar::of_int(dtype, 1);
    store_element(one, bytes + 1);  // unaligned on purpose
    INFO(name(dtype));
    CHECK(bytes[0] == 0xAB);
    CHECK(bytes[1 + size_of(dtype)] == 0xAB);
    const Scalar back = load_element(dtype, bytes + 1);
    CHECK(back.dtype == dtype);
    CHECK(back.i == one.i);
  }
  const unsigned char raw[] = {0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
  CHECK(load_element(I8, raw).i == -2);
  CHECK(load_element(U8, raw).i == 254);
  CHECK(load_element(I16, raw).i == -2);
  CHECK(load_element(U16, raw).i == 65534);
  CHECK(load_element(I32, raw).i == -2);
  CHECK(load_element(U32, raw).i == 0xFFFFFFFE);
  CHECK(load_element(U64, raw).i == -2);
  CHECK(load_element(Bool, raw).i == 1);
  const unsigned char half[] = {0x00, 0x3C};
  CHECK(load_element(F16, half).f == 1);
}
