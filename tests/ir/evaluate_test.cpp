// Scalar ops, one at a time, on the values where they differ from what C++ would do.
#include <catch2/catch.hpp>

#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/interp.h"

using namespace kiln;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

Scalar number(DType dtype, double value) {
  return convert(Scalar::of_float(F64, value), dtype);
}

Scalar run(OpCode code, const std::vector<Scalar>& in, DType result, const char* kind = nullptr) {
  Kernel kernel("scalar");
  Builder builder(kernel);
  Attrs attrs;
  if (kind) attrs.set("kind", std::string(kind));
  OpId op = builder.emit(code, {}, attrs, Type::scalar(result));
  return evaluate(kernel, kernel.op(op), in);
}

double real(OpCode code, DType dtype, const std::vector<double>& in) {
  std::vector<Scalar> operands;
  for (double value : in) operands.push_back(number(dtype, value));
  return run(code, operands, dtype).f;
}

int64_t integer(OpCode code, DType dtype, const std::vector<int64_t>& in) {
  std::vector<Scalar> operands;
  for (int64_t value : in) operands.push_back(Scalar::of_int(dtype, value));
  return run(code, operands, dtype).i;
}

bool compare(const char* kind, const Scalar& a, const Scalar& b) {
  return run(OpCode::Compare, {a, b}, Bool, kind).i != 0;
}

}  // namespace

TEST_CASE("floor division and modulo, all signs", "[evaluate]") {
  struct Case {
    int64_t a, b, quotient, remainder;
  };
  for (Case c : {Case{7, 2, 3, 1}, Case{-7, 2, -4, 1}, Case{7, -2, -4, -1}, Case{-7, -2, 3, -1},
                 Case{6, 3, 2, 0}, Case{-6, 3, -2, 0}, Case{6, -3, -2, 0}, Case{-6, -3, 2, 0},
                 Case{0, 5, 0, 0}, Case{1, 5, 0, 1}, Case{-1, 5, -1, 4}, Case{1, -5, -1, -4},
                 Case{5, 0, 0, 0}, Case{-5, 0, 0, 0}, Case{5, -1, -5, 0}})
    for (DType dtype : {I8, I16, I32, I64}) {
      CHECK(integer(OpCode::FloorDiv, dtype, {c.a, c.b}) == c.quotient);
      CHECK(integer(OpCode::FloorMod, dtype, {c.a, c.b}) == c.remainder);
    }
  CHECK(integer(OpCode::FloorDiv, I32, {INT32_MIN, -1}) == INT32_MIN);
  CHECK(integer(OpCode::FloorMod, I32, {INT32_MIN, -1}) == 0);
  CHECK(integer(OpCode::FloorDiv, I64, {INT64_MIN, -1}) == INT64_MIN);
  CHECK(integer(OpCode::FloorMod, I64, {INT64_MIN, -1}) == 0);
  CHECK(integer(OpCode::FloorDiv, U64, {-1, 2}) == INT64_MAX);
  CHECK(integer(OpCode::FloorMod, U64, {-1, 10}) == 5);
  CHECK(integer(OpCode::FloorMod, U64, {-1, -1}) == 0);
  CHECK(integer(OpCode::FloorDiv, U8, {255, 255}) == 1);
  CHECK(integer(OpCode::FloorDiv, U32, {0xFFFFFFFF, 2}) == 0x7FFFFFFF);
}

TEST_CASE("integer arithmetic wraps", "[evaluate]") {
  CHECK(integer(OpCode::Add, I8, {127, 1}) == -128);
  CHECK(integer(OpCode::Add, U8, {255, 1}) == 0);
  CHECK(integer(OpCode::Sub, U32, {0, 1}) == 0xFFFFFFFF);
  CHECK(integer(OpCode::Mul, I32, {65536, 65536}) == 0);
  CHECK(integer(OpCode::Mul, I64, {INT64_MAX, 2}) == -2);
  CHECK(integer(OpCode::Neg, I16, {-32768}) == -32768);
  CHECK(integer(OpCode::Abs, I16, {-32768}) == -32768);
  CHECK(integer(OpCode::Abs, I16, {-3}) == 3);
  CHECK(integer(OpCode::Abs, U64, {-1}) == -1);
  CHECK(integer(OpCode::Neg, U8, {1}) == 255);
}

TEST_CASE("bits and shifts", "[evaluate]") {
  CHECK(integer(OpCode::And, I8, {-1, 0x55}) == 0x55);
  CHECK(integer(OpCode::Or, U8, {0x0F, 0xF0}) == 0xFF);
  CHECK(integer(OpCode::Xor, I32, {-1, 1}) == -2);
  CHECK(integer(OpCode::Not, U8, {0}) == 255);
  CHECK(integer(OpCode::Not, I8, {0}) == -1);
  CHECK(integer(OpCode::Not, Bool, {1}) == 0);
  CHECK(integer(OpCode::Xor, Bool, {1, 1}) == 0);
  CHECK(integer(OpCode::Shl, I32, {1, 31}) == INT32_MIN);
  CHECK(integer(OpCode::Shl, I32, {1, 32}) == 0);
  CHECK(integer(OpCode::Shl, I32, {1, -1}) == 0);
  CHECK(integer(OpCode::Shl, U8, {0xFF, 4}) == 0xF0);
  CHECK(integer(OpCode::Shr, I8, {-128, 3}) == -16);
  CHECK(integer(OpCode::Shr, I8, {-128, 8}) == -1);
  CHECK(integer(OpCode::Shr, I8, {-1, -1}) == -1);
  CHECK(integer(OpCode::Shr, I8, {64, 8}) == 0);
  CHECK(integer(OpCode::Shr, I64, {-2, 64}) == -1);
  CHECK(integer(OpCode::Shr, U8, {0x80, 7}) == 1);
  CHECK(integer(OpCode::Shr, U8, {0x80, 8}) == 0);
  CHECK(integer(OpCode::Shr, U64, {-1, 63}) == 1);
}

TEST_CASE("floats round once, in their own type", "[evaluate]") {
  CHECK(real(OpCode::Add, F32, {16777216, 1}) == 16777216);
  CHECK(real(OpCode::Add, F16, {2048, 1}) == 2048);
  CHECK(real(OpCode::Add, F16, {2048, 3}) == 2052);
  CHECK(real(OpCode::Mul, F16, {300, 300}) == kInf);
  CHECK(real(OpCode::Mul, E4M3, {300, 300}) == 448);
  CHECK(real(OpCode::Add, BF16, {256, 1}) == 256);
  CHECK(real(OpCode::Div, F32, {1, 3}) == static_cast<double>(1.0f / 3.0f));
  CHECK(real(OpCode::Div, F32, {1, 0}) == kInf);
  CHECK(real(OpCode::Sqrt, F32, {2}) == static_cast<double>(std::sqrt(2.0f)));
  CHECK(real(OpCode::Rsqrt, F32, {4}) == 0.5);
  CHECK(real(OpCode::Rsqrt, F32, {0}) == kInf);
  CHECK(std::isnan(real(OpCode::Sqrt, F32, {-1})));
  // The product is exact inside an fma: (1 + e)(1 − e) − 1 = −e².
  const double e = std::ldexp(1, -20);
  CHECK(real(OpCode::Fma, F32, {1 + e, 1 - e, -1}) == -e * e);
  const double tiny = std::ldexp(1, -40);
  CHECK(real(OpCode::Fma, F64, {1 + tiny, 1 - tiny, -1}) == -tiny * tiny);
}

TEST_CASE("functions of floats", "[evaluate]") {
  CHECK(real(OpCode::Exp, F32, {-kInf}) == 0);
  CHECK(real(OpCode::Exp, F32, {100}) == kInf);
  CHECK(real(OpCode::Exp2, F32, {-3}) == 0.125);
  CHECK(real(OpCode::Log, F32, {0}) == -kInf);
  CHECK(std::isnan(real(OpCode::Log, F32, {-1})));
  CHECK(real(OpCode::Log2, F16, {1024}) == 10);
  CHECK(real(OpCode::Tanh, F32, {kInf}) == 1);
  CHECK(real(OpCode::Floor, F32, {-1.5}) == -2);
  CHECK(real(OpCode::Ceil, F32, {-1.5}) == -1);
  CHECK(real(OpCode::Exp, F32, {1}) == static_cast<double>(static_cast<float>(std::exp(1.0))));
}

TEST_CASE("NaN: min and max give the other, comparisons are false but ne", "[evaluate]") {
  for (DType dtype : {F16, BF16, F32, F64, E4M3, E5M2}) {
    CHECK(real(OpCode::Min, dtype, {kNan, 1}) == 1);
    CHECK(real(OpCode::Min, dtype, {1, kNan}) == 1);
    CHECK(real(OpCode::Max, dtype, {kNan, -1}) == -1);
    CHECK(real(OpCode::Max, dtype, {-1, kNan}) == -1);
    CHECK(std::isnan(real(OpCode::Max, dtype, {kNan, kNan})));
    Scalar nan = number(dtype, kNan), one = number(dtype, 1);
    for (const char* kind : {"eq", "lt", "le", "gt", "ge"}) {
      CHECK_FALSE(compare(kind, nan, one));
      CHECK_FALSE(compare(kind, one, nan));
      CHECK_FALSE(compare(kind, nan, nan));
    }
    CHECK(compare("ne", nan, nan));
    CHECK(compare("ne", nan, one));
  }
}

TEST_CASE("comparisons follow the sign of the type", "[evaluate]") {
  auto both = [](DType dtype, const char* kind) {
    return compare(kind, Scalar::of_int(dtype, -1), Scalar::of_int(dtype, 1));
  };
  for (DType dtype : {I8, I16, I32, I64}) CHECK(both(dtype, "lt"));
  for (DType dtype : {U8, U16, U32, U64}) CHECK(both(dtype, "gt"));
  CHECK(integer(OpCode::Max, U64, {-1, 1}) == -1);
  CHECK(integer(OpCode::Max, I64, {-1, 1}) == 1);
  CHECK(integer(OpCode::Min, U8, {-1, 1}) == 1);
  Scalar two = Scalar::of_int(I32, 2), three = Scalar::of_int(I32, 3);
  CHECK(compare("le", two, two));
  CHECK(compare("ge", three, two));
  CHECK_FALSE(compare("gt", two, two));
  CHECK(compare("eq", number(F32, 0), number(F32, -0.0)));
}

TEST_CASE("select and cast", "[evaluate]") {
  Scalar yes = Scalar::of_int(Bool, 1), no = Scalar::of_int(Bool, 0);
  CHECK(run(OpCode::Select, {yes, number(F32, 1), number(F32, kNan)}, F32).f == 1);
  CHECK(run(OpCode::Select, {no, number(F32, kNan), number(F32, 2)}, F32).f == 2);
  CHECK(run(OpCode::Cast, {number(F32, -2.7)}, I32).i == -2);
  CHECK(run(OpCode::Cast, {number(F32, 300)}, U8).i == 255);
  CHECK(run(OpCode::Cast, {number(F32, kNan)}, I32).i == 0);
  CHECK(run(OpCode::Cast, {number(F32, kNan)}, Bool).i == 1);
  CHECK(run(OpCode::Cast, {Scalar::of_int(I32, 300)}, U8).i == 44);
}
