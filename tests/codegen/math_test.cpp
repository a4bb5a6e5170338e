// Accuracy of the f32 functions against double, in units of the last place, over dense sweeps.
#include <catch2/catch.hpp>
#include <cfloat>
#include <cmath>
#include <limits>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr int64_t kChunk = 1024;
const double kInf = std::numeric_limits<double>::infinity();

// y = op(x) over all of `x`.
std::vector<float> evaluate_all(OpCode code, bool fast, std::vector<float>& x, const Level& level) {
  Program p("math");
  const int64_t count = static_cast<int64_t>(x.size());
  Value in = p.tensor("x", F32, {count}), out = p.tensor("y", F32, {count}, "output");
  Attrs attrs;
  attrs.set("fast", fast);
  p.launch({p.index((count + kChunk - 1) / kChunk)}, [&](std::span<const Value> block) {
    Value first = p.b.binary(OpCode::Mul, block[0], p.index(kChunk));
    p.b.parallel({kChunk}, [&](std::span<const Value> i) {
      Value at = p.b.binary(OpCode::Add, first, i[0]);
      OpId op = p.b.emit(code, {p.b.load(in, {at})}, attrs, Type::scalar(F32));
      p.b.store(p.kernel.op(op).result, out, {at});
    });
  });
  std::vector<float> y(x.size());
  Bindings bindings;
  bindings.tensors["x"] = Memory::contiguous(x.data(), F32, {count});
  bindings.tensors["y"] = Memory::contiguous(y.data(), F32, {count});
  level.compile(p.kernel)(bindings);
  return y;
}

// Distance from the exact value in units of f32's last place there.
double error_in_ulp(float got, double exact) {
  const float rounded = static_cast<float>(exact);
  if (std::isnan(exact) || std::isinf(rounded))
    return (std::isnan(exact) ? std::isnan(got) : got == rounded) ? 0 : kInf;
  if (std::isnan(got) || std::isinf(got)) return kInf;
  const int exponent = std::max(-126, exact == 0 ? -126 : std::ilogb(exact));
  return std::fabs(got - exact) / std::ldexp(1.0, exponent - 23);
}

struct Function {
  OpCode code;
  double (*exact)(double);
  float low, high;
};

const Function kFunctions[] = {
    {OpCode::Exp2, std::exp2, -155.0f, 129.0f},
    {OpCode::Exp, std::exp, -106.0f, 90.0f},
    {OpCode::Log2, std::log2, 1e-40f, 100.0f},
    {OpCode::Log, std::log, 1e-40f, 100.0f},
    {OpCode::Tanh, std::tanh, -12.0f, 12.0f},
    {OpCode::Sqrt, std::sqrt, 0.0f, 1e30f},
    {OpCode::Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-30f, 1e30f},
};

std::vector<float> sweep(const Function& f) {
  std::vector<float> x = {0.0f,   -0.0f,   INFINITY, -INFINITY, NAN,       1.0f,
                          -1.0f,  1e-45f,  -1e-45f,  3e38f,     -3e38f,    127.99999f,
                          128.0f, -126.0f, -149.0f,  -150.5f,   88.72283f, -103.97f};
  for (float step = 0; step < 60000; ++step) x.push_back(f.low + (f.high - f.low) * step / 60000);
  // Every order of magnitude, and all around 1.
  for (int e = -149; e < 128; ++e)
    for (float m = 1; m < 2; m += 0.0137f)
      for (float sign : {1.0f, -1.0f}) x.push_back(sign * std::ldexp(m, e));
  for (int i = -20000; i < 20000; ++i) x.push_back(1 + static_cast<float>(i) * 0x1p-17f);
  return x;
}

}  // namespace

// What a fast function may give on a GPU: the hardware's error, with numbers below the normal ones
// taken for 0. tanh is then 1 − 2 / (e^2x + 1), whose error near 0 is one of 1.
bool right_on_gpu(OpCode code, double x, float got, double exact) {
  if (std::fabs(x) < FLT_MIN && x != 0) exact = NAN;  // as at 0: checked there
  if (std::isnan(exact)) return true;
  if (std::fabs(exact) < 2 * FLT_MIN) return std::fabs(got) < 4 * FLT_MIN;
  const double scale = code == OpCode::Exp ? 4 + 1.5 * std::fabs(x) : 4;  // x·log2 e is rounded
  return error_in_ulp(got, exact) <= scale ||
         (code != OpCode::Exp && std::fabs(got - exact) <= 4e-7);
}

TEST_CASE("fast f32 functions on a GPU", "[math]") {
  if (on_host()) return;
  for (const Function& f : kFunctions)
    for (const Level& level : levels()) {
      std::vector<float> x = sweep(f);
      std::vector<float> y = evaluate_all(f.code, true, x, level);
      for (size_t i = 0; i < x.size(); ++i)
        if (!right_on_gpu(f.code, x[i], y[i], f.exact(x[i]))) {
          INFO(info(f.code).name << " of " << x[i] << ": " << y[i] << ", not " << f.exact(x[i]));
          CHECK(false);
          break;
        }
    }
}

TEST_CASE("f32 functions are accurate everywhere", "[math]") {
  for (const Function& f : kFunctions)
    for (bool fast : on_host() ? std::vector<bool>{false, true} : std::vector<bool>{false})
      for (const Level& level : levels()) {
        std::vector<float> x = sweep(f);
        std::vector<float> y = evaluate_all(f.code, fast, x, level);
        double worst = 0, at = 0;
        for (size_t i = 0; i < x.size(); ++i) {
          const double error = error_in_ulp(y[i], f.exact(x[i]));
          if (error > worst) worst = error, at = x[i];
        }
        INFO(info(f.code).name << (fast ? " fast " : " ") << level.name << ": " << worst
                               << " ulp at " << at);
        // A GPU's own functions, inside ours, are off by up to 2 ulp where a CPU rounds right.
        CHECK(worst <= (fast ? 4.0 : on_host() ? 2.0 : 3.0));
      }
}
