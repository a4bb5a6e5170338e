// Approximate functions, within the errors that the PTX manual gives. An expected value is rounded,
// so half a unit in its last place is added to each error.
#include <fmt/format.h>

#include "tests/conformance/rounding.h"

namespace kiln::conformance {
namespace {

constexpr double kHalfUlp = 0x1p-24;
constexpr double kTiny = 0x1p-148;  // two units of the subnormal numbers

struct Function {
  const char* op;
  double (*compute)(double);
  double relative, absolute;
  double from, to;  // the range of most inputs
  bool special;     // also 0, infinities and NaN, which are exact
};

const Function kFunctions[] = {
    {"rcp.approx", [](double x) { return 1 / x; }, 0x1p-23, kTiny, -1e6, 1e6, true},
    {"sqrt.approx", [](double x) { return std::sqrt(x); }, 0x1p-23, 0, -2, 1e6, true},
    {"rsqrt.approx", [](double x) { return 1 / std::sqrt(x); }, std::exp2(-22.4), 0, 1e-6, 1e6,
     true},
    {"ex2.approx", [](double x) { return std::exp2(x); }, 0x1p-22, kTiny, -125, 127, true},
    {"lg2.approx", [](double x) { return std::log2(x); }, 0x1p-22, 0x1p-22, 1e-6, 1e6, true},
    {"lg2.approx", [](double x) { return std::log2(x); }, 0, 0x1p-22, 0.5, 2, false},
    {"sin.approx", [](double x) { return std::sin(x); }, 0, std::exp2(-20.5), -3.14159, 3.14159,
     false},
    {"cos.approx", [](double x) { return std::cos(x); }, 0, std::exp2(-20.5), -3.14159, 3.14159,
     false},
};

float between(double from, double to, std::mt19937_64& random) {
  double part = static_cast<double>(random() >> 11) * 0x1p-53;
  return static_cast<float>(from + (to - from) * part);
}

uint64_t moderate(double from, double to, bool special, std::mt19937_64& random) {
  if (special && random() % 8 == 0) {
    const float kSpecial[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f, -1.0f};
    return bits(kSpecial[random() % 7]);
  }
  return bits(between(from, to, random));
}

void add_function(Table& table, const Function& function, bool ftz) {
  table.add(Row{.text = fmt::format("{}{}.f32 $0, $1;", function.op, ftz ? ".ftz" : ""),
                .results = {"f32"},
                .operands = {"f32"},
                .element = Element::F32,
                .tolerance = {function.relative + kHalfUlp, function.absolute},
                .value =
                    [=](size_t, size_t, std::mt19937_64& random) {
                      return moderate(function.from, function.to, function.special, random);
                    }},
            [=](const uint64_t* in) {
              return bits(static_cast<float>(function.compute(as<float>(in[0]))));
            });
}

void add_tanh_and_halves(Table& table) {
  auto value = [](DType type, double from, double to) {
    return [=](size_t, size_t, std::mt19937_64& random) {
      return to_half(type, between(from, to, random)) | to_half(type, between(from, to, random))
                                                            << 16;
    };
  };
  table.add(Row{.text = "tanh.approx.f32 $0, $1;",
                .results = {"f32"},
                .operands = {"f32"},
                .element = Element::F32,
                .tolerance = {0x1p-11 + kHalfUlp, 0},
                .value = [](size_t, size_t,
                            std::mt19937_64& random) { return moderate(-6, 6, true, random); }},
            [](const uint64_t* in) {
              return bits(static_cast<float>(std::tanh(double{as<float>(in[0])})));
            });
  struct Half {
    const char* op;
    DType type;
    double (*compute)(double);
    Tolerance tolerance;  // with half a unit in the last place
    int target;
  };
  double (*exp2)(double) = [](double x) { return std::exp2(x); };
  double (*tanh)(double) = [](double x) { return std::tanh(x); };
  const Half kHalves[] = {
      {"ex2.approx", DType::F16, exp2, {std::exp2(-9.9) + 0x1p-11, 0}, 80},
      {"ex2.approx.ftz", DType::BF16, exp2, {0x1p-7 + 0x1p-9, 0}, 90},
      {"tanh.approx", DType::F16, tanh, {0, std::exp2(-10.987) + 0x1p-12}, 80},
      {"tanh.approx", DType::BF16, tanh, {0, 0x1p-8 + 0x1p-9}, 90},
  };
  for (const Half& half : kHalves)
    for (bool pair : {false, true}) {
      std::string type = std::string(name(half.type)) + (pair ? "x2" : "");
      bool f16 = half.type == DType::F16;
      Element element =
          f16 ? (pair ? Element::F16x2 : Element::F16) : (pair ? Element::BF16x2 : Element::BF16);
      table.add(Row{.text = fmt::format("{}.{} $0, $1;", half.op, type),
                    .results = {type},
                    .operands = {type},
                    .element = element,
                    .tolerance = half.tolerance,
                    .target = half.target,
                    .value = value(half.type, -6, 6)},
                [=](const uint64_t* in) {
                  auto part = [&](int shift) {
                    return to_half(half.type,
                                   half.compute(from_half(half.type, in[0] >> shift & 0xffff)));
                  };
                  return part(0) | (pair ? part(16) << 16 : 0);
                });
    }
}

}  // namespace

void add_math(Table& table) {
  for (const Function& function : kFunctions)
    for (bool ftz : {false, true}) add_function(table, function, ftz);
  for (const char* op : {"div.approx", "div.full"})
    for (bool ftz : {false, true})
      table.add(
          Row{.text = fmt::format("{}{}.f32 $0, $1, $2;", op, ftz ? ".ftz" : ""),
              .results = {"f32"},
              .operands = {"f32", "f32"},
              .element = Element::F32,
              .tolerance = {0x1p-22 + kHalfUlp, 0},
              .value = [](size_t, size_t,
                          std::mt19937_64& random) { return moderate(-1e6, 1e6, true, random); }},
          [](const uint64_t* in) { return bits(as<float>(in[0]) / as<float>(in[1])); });
  add_tanh_and_halves(table);
}

}  // namespace kiln::conformance
