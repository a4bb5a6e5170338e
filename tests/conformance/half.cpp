// f16 and bf16, alone and in pairs.
#include <fmt/format.h>

#include "tests/conformance/rounding.h"

namespace kiln::conformance {
namespace {

using Operation = std::function<double(double, double, double)>;

struct Modifiers {
  bool ftz = false, sat = false, relu = false;
};

struct Halves {
  Table& table;
  DType type;
  bool pair;

  double input(uint64_t slot, bool ftz) const {
    double x = from_half(type, slot);
    return ftz ? flush(x) : x;
  }
  double flush(double x) const {
    double least_normal = type == DType::F16 ? 0x1p-14 : 0x1p-126;
    return std::abs(x) < least_normal ? std::copysign(0.0, x) : x;
  }
  uint64_t result(double exact, const Modifiers& how) const {
    uint64_t slot = to_half(type, exact);
    double value = from_half(type, slot);
    if (how.ftz) value = flush(value);
    if (how.sat) value = saturated(value);
    if (how.relu && value <= 0) value = 0;
    return to_half(type, value);
  }
  void add(const std::string& op, size_t operands, int target, Modifiers how, Operation compute) {
    std::string name = std::string(kiln::name(type)) + (pair ? "x2" : "");
    std::string list;
    for (size_t i = 1; i <= operands; ++i) list += fmt::format(", ${}", i);
    Element element = type == DType::F16 ? (pair ? Element::F16x2 : Element::F16)
                                         : (pair ? Element::BF16x2 : Element::BF16);
    table.add(Row{.text = fmt::format("{}{}{}{}.{} $0{};", op, how.ftz ? ".ftz" : "",
                                      how.sat ? ".sat" : "", how.relu ? ".relu" : "", name, list),
                  .results = {name},
                  .operands = std::vector<std::string>(operands, name),
                  .element = element,
                  .target = target},
              [=, *this](const uint64_t* in) {
                uint64_t all = 0;
                for (int part = 0; part <= pair; ++part) {
                  double x[3] = {};
                  for (size_t i = 0; i < operands; ++i)
                    x[i] = input(in[i] >> (16 * part) & 0xffff, how.ftz);
                  all |= result(compute(x[0], x[1], x[2]), how) << (16 * part);
                }
                return all;
              });
  }
  void add_all() {
    bool half = type == DType::F16;
    Operation sum = [](double a, double b, double) { return odd_fma(a, 1, b); };
    Operation difference = [](double a, double b, double) { return odd_fma(b, -1, a); };
    Operation product = [](double a, double b, double) { return odd_fma(a, b, -0.0); };
    Operation fused = [](double a, double b, double c) { return odd_fma(a, b, c); };
    int arithmetic = half ? 80 : 90;
    for (bool ftz : {false, true})
      for (bool sat : {false, true}) {
        if (!half && (ftz || sat)) continue;
        add("add.rn", 2, arithmetic, {ftz, sat}, sum);
        add("sub.rn", 2, arithmetic, {ftz, sat}, difference);
        add("mul.rn", 2, arithmetic, {ftz, sat}, product);
        add("fma.rn", 3, 80, {ftz, sat}, fused);
      }
    add("fma.rn", 3, 80, {false, false, true}, fused);
    if (half) add("fma.rn", 3, 80, {true, false, true}, fused);
    auto nan = [](double a, double b, double value) {
      return std::isnan(a) || std::isnan(b) ? NAN : value;
    };
    for (bool ftz : {false, true}) {
      if (ftz && !half) continue;
      add("min", 2, 80, {ftz}, [](double a, double b, double) { return least(a, b); });
      add("max", 2, 80, {ftz}, [](double a, double b, double) { return greatest(a, b); });
      add("neg", 1, 80, {ftz}, [](double a, double, double) { return -a; });
      add("abs", 1, 80, {ftz}, [](double a, double, double) { return std::abs(a); });
    }
    add("min.NaN", 2, 80, {}, [=](double a, double b, double) { return nan(a, b, least(a, b)); });
    add("max.NaN", 2, 80, {},
        [=](double a, double b, double) { return nan(a, b, greatest(a, b)); });
  }
};

}  // namespace

void add_half(Table& table) {
  for (DType type : {DType::F16, DType::BF16})
    for (bool pair : {false, true}) Halves{table, type, pair}.add_all();
}

}  // namespace kiln::conformance
