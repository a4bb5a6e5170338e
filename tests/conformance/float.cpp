// f32 and f64: exactly rounded arithmetic.
#include <fmt/format.h>

#include "tests/conformance/rounding.h"

namespace kiln::conformance {
namespace {

template <class T>
constexpr bool kIsSingle = sizeof(T) == 4;

template <class T>
struct Rows {
  Table& table;
  std::string type = kIsSingle<T> ? "f32" : "f64";
  Element element = kIsSingle<T> ? Element::F32 : Element::F64;

  // `compute` of volatile operands in the mode; modifiers are ftz and sat, of f32 only.
  template <class F>
  void exact(const std::string& op, size_t operands, F compute) {
    for (Mode mode : kModes)
      for (bool ftz : {false, true})
        for (bool sat : {false, true}) {
          bool saturates = op != "div" && op != "sqrt" && op != "rcp";
          if ((!kIsSingle<T> && (ftz || sat)) || (sat && !saturates)) continue;
          std::string list;
          for (size_t i = 1; i <= operands; ++i) list += fmt::format(", ${}", i);
          table.add(Row{fmt::format("{}.{}{}{}.{} $0{};", op, mode.name, ftz ? ".ftz" : "",
                                    sat ? ".sat" : "", type, list),
                        {type},
                        std::vector<std::string>(operands, type),
                        element},
                    [=](const uint64_t* in) {
                      T x[3] = {};
                      for (size_t i = 0; i < operands; ++i) x[i] = input(in[i], ftz);
                      T result = in_mode(mode.fenv, [&] {
                        volatile T a = x[0], b = x[1], c = x[2];
                        volatile T value = compute(a, b, c);
                        return T{value};
                      });
                      if constexpr (kIsSingle<T>)
                        if (ftz) result = flushed(result);
                      return bits(sat ? saturated(result) : result);
                    });
        }
  }
  static T input(uint64_t slot, bool ftz) {
    T value = as<T>(slot);
    if constexpr (kIsSingle<T>) return ftz ? flushed(value) : value;
    return value;
  }
  template <class F>
  void plain(const std::string& op, size_t operands, bool ftz, F compute) {
    table.add(Row{fmt::format("{}{}.{} $0, $1{};", op, ftz ? ".ftz" : "", type,
                              operands == 2 ? ", $2" : ""),
                  {type},
                  std::vector<std::string>(operands, type),
                  element},
              [=](const uint64_t* in) {
                return bits<T>(compute(input(in[0], ftz), input(in[operands - 1], ftz)));
              });
  }

  void add_all() {
    using V = volatile T&;
    exact("add", 2, [](V a, V b, V) { return a + b; });
    exact("sub", 2, [](V a, V b, V) { return a - b; });
    exact("mul", 2, [](V a, V b, V) { return a * b; });
    exact("div", 2, [](V a, V b, V) { return a / b; });
    exact("fma", 3, [](V a, V b, V c) { return std::fma(T{a}, T{b}, T{c}); });
    exact("sqrt", 1, [](V a, V, V) { return std::sqrt(T{a}); });
    exact("rcp", 1, [](V a, V, V) { return T{1} / a; });
    for (bool ftz : {false, true}) {
      if (ftz && !kIsSingle<T>) continue;
      plain("min", 2, ftz, [](T a, T b) { return least(a, b); });
      plain("max", 2, ftz, [](T a, T b) { return greatest(a, b); });
      plain("neg", 1, ftz, [](T a, T) { return -a; });
      plain("abs", 1, ftz, [](T a, T) { return std::abs(a); });
    }
    plain("copysign", 2, false, [](T a, T b) { return std::copysign(b, a); });
  }
};

}  // namespace

void add_float(Table& table) {
  Rows<float>{table}.add_all();
  Rows<double>{table}.add_all();
  auto propagates = [](float a, float b, float result) {
    return bits(std::isnan(a) || std::isnan(b) ? NAN : result);
  };
  table.add(Row{"min.NaN.f32 $0, $1, $2;", {"f32"}, {"f32", "f32"}, Element::F32},
            [=](const uint64_t* in) {
              float a = as<float>(in[0]), b = as<float>(in[1]);
              return propagates(a, b, least(a, b));
            });
  table.add(Row{"max.NaN.f32 $0, $1, $2;", {"f32"}, {"f32", "f32"}, Element::F32},
            [=](const uint64_t* in) {
              float a = as<float>(in[0]), b = as<float>(in[1]);
              return propagates(a, b, greatest(a, b));
            });
}

}  // namespace kiln::conformance
