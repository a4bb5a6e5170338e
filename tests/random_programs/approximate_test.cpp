// Approximated functions are exact again after rounding: no value comes near a boundary.
#include "tests/differential/generate/approximate.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "ir/interp.h"

namespace kiln::differential {
namespace {

double exact(OpCode code, double x) {
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

double to_boundary(double value) {
  return std::fabs(value - std::nearbyint(value));
}

// A bf16 is off by 2^-9 of itself, thrice: in the function, the product and the sum.
TEST_CASE("no approximated value is near a boundary of its grid") {
  constexpr double kMargin = 4 * 0x1p-9;
  for (const Approximation& how : approximations())
    for (int64_t x = how.low; x <= how.high; ++x) {
      const double y = how.scale * exact(how.code, static_cast<double>(x));
      INFO(info(how.code).name << " of " << x);
      CHECK(to_boundary(y + how.offset) > kMargin * (1 + std::fabs(y) + std::fabs(how.offset)));
    }
}

TEST_CASE("what is approximated in 16 bits is what it is in 64") {
  for (const Approximation& how : approximations())
    for (int64_t x = -4; x <= 4; ++x) {
      std::vector<double> results;
      for (DType dtype : {F64, F32, F16, BF16}) {
        Kernel kernel("k");
        Builder builder(kernel);
        Attrs attrs;
        attrs.set("name", std::string("y"));
        attrs.set("role", std::string("output"));
        Value y =
            kernel.op(builder.emit(OpCode::Tensor, {}, std::move(attrs), Type::tensor(F64, {1})))
                .result;
        RegionId body =
            builder.add_region(builder.emit(OpCode::Launch, {builder.constant(I32, 1)}));
        kernel.add_argument(body, Type::scalar(I32));
        Builder inside(kernel, body);
        Value argument = inside.constant(dtype, static_cast<double>(x));
        Value value = inside.cast(approximated(inside, how, argument), F64);
        inside.store(value, y, {inside.constant(I32, 0)});
        double result = 0;
        interpret(kernel, {{{"y", Memory::contiguous(&result, F64, {1})}}, {}, {}});
        results.push_back(result);
      }
      INFO(info(how.code).name << " of " << x);
      for (double result : results) CHECK(result == results[0]);
    }
}

// Weights of 1, each off by the error of an exponent of at most 8 · 24 · log2 e in f32, and those
// that vanish.
TEST_CASE("quotients and logarithms of a softmax of whole numbers are not near a boundary") {
  constexpr double kWeight = 8 * 24 * 1.4427 * 0x1p-23 + 128 * 1.2e-7;
  for (int64_t l = 1; l <= kMostWeights; ++l) {
    INFO(l);
    for (int64_t a = -4 * l; a <= 4 * l; ++a) {
      const double quotient = static_cast<double>(a) / static_cast<double>(l);
      CHECK(to_boundary(quotient + kQuotientOffset) > 8 * kWeight);
    }
    CHECK(to_boundary(std::log(static_cast<double>(l)) + kLseOffset) > 200 * 0x1p-23 + 2 * kWeight);
  }
}

}  // namespace
}  // namespace kiln::differential
