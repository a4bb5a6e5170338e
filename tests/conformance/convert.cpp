// cvt.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tests/conformance/rounding.h"

namespace kiln::conformance {
namespace {

__extension__ using Wide = __int128;

// "s8" … "u64": the value in a slot, and the ends.
struct Integer {
  std::string name;
  bool is_signed() const { return name[0] == 's'; }
  unsigned width() const { return static_cast<unsigned>(std::stoi(name.substr(1))); }
  Wide read(uint64_t slot) const {
    unsigned unused = 64 - width();
    return is_signed() ? Wide{static_cast<int64_t>(slot << unused) >> unused}
                       : Wide{slot << unused >> unused};
  }
  Wide least() const { return is_signed() ? -(Wide{1} << (width() - 1)) : 0; }
  Wide most() const { return (Wide{1} << (width() - is_signed())) - 1; }
  std::string holder() const { return width() == 8 ? "b16" : name; }
  // The value extended to the register that holds it.
  uint64_t slot(Wide value) const {
    uint64_t all = static_cast<uint64_t>(read(static_cast<uint64_t>(value)));
    unsigned kept = width() == 8 ? 16 : width();
    return all << (64 - kept) >> (64 - kept);
  }
};
const std::vector<Integer> kIntegers = {{"s8"},  {"u8"},  {"s16"}, {"u16"},
                                        {"s32"}, {"u32"}, {"s64"}, {"u64"}};

void between_integers(Table& table) {
  for (const Integer& to : kIntegers)
    for (const Integer& from : kIntegers) {
      if (to.name == from.name) continue;
      table.add(
          Row{fmt::format("cvt.{}.{} $0, $1;", to.name, from.name), {to.holder()}, {from.holder()}},
          [=](const uint64_t* in) { return to.slot(from.read(in[0])); });
      if (to.width() > 32 || from.width() < 32) continue;
      table.add(Row{fmt::format("cvt.sat.{}.{} $0, $1;", to.name, from.name),
                    {to.holder()},
                    {from.holder()}},
                [=](const uint64_t* in) {
                  return to.slot(std::clamp(from.read(in[0]), to.least(), to.most()));
                });
    }
}

double read_float(const std::string& type, uint64_t slot) {
  return type == "f16"    ? from_half(DType::F16, slot)
         : type == "bf16" ? from_half(DType::BF16, slot)
         : type == "f32"  ? as<float>(slot)
                          : as<double>(slot);
}
Element element_of(const std::string& type) {
  return type == "f16"    ? Element::F16
         : type == "bf16" ? Element::BF16
         : type == "f32"  ? Element::F32
                          : Element::F64;
}
// Rounded to an integer in the mode.
double integral(double value, int mode) {
  return mode == FE_TOWARDZERO ? std::trunc(value)
         : mode == FE_DOWNWARD ? std::floor(value)
         : mode == FE_UPWARD   ? std::ceil(value)
                               : std::nearbyint(value);
}

// NaN gives 0, but if f64 or 64 bits are involved the result is the pattern with only its top bit.
uint64_t integer_from(const Integer& to, const std::string& from, double value, int mode) {
  if (std::isnan(value)) {
    bool top = from == "f64" || to.width() == 64;
    return top ? to.slot(Wide{1} << (to.width() - 1)) : 0;
  }
  value = integral(value, mode);
  if (value >= 0x1p64) return to.slot(to.most());
  if (value <= -0x1p64) return to.slot(to.least());
  return to.slot(std::clamp(static_cast<Wide>(value), to.least(), to.most()));
}

void between_floats_and_integers(Table& table) {
  for (const Integer& integer : kIntegers)
    for (std::string type : {"f16", "f32", "f64"})
      for (Mode mode : kModes) {
        table.add(Row{fmt::format("cvt.{}i.{}.{} $0, $1;", mode.name, integer.name, type),
                      {integer.holder()},
                      {type}},
                  [=](const uint64_t* in) {
                    return integer_from(integer, type, read_float(type, in[0]), mode.fenv);
                  });
        table.add(Row{fmt::format("cvt.{}.{}.{} $0, $1;", mode.name, type, integer.name),
                      {type},
                      {integer.holder()},
                      element_of(type)},
                  [=](const uint64_t* in) {
                    Wide value = integer.read(in[0]);
                    if (value == 0) return uint64_t{0};  // compilers' sequences may give -0
                    if (type == "f16") return to_half(DType::F16, double(value), mode.fenv);
                    volatile int64_t s = static_cast<int64_t>(value);
                    volatile uint64_t u = static_cast<uint64_t>(value);
                    bool negative = value < 0;
                    return in_mode(mode.fenv, [&] {
                      volatile float f = negative ? static_cast<float>(s) : static_cast<float>(u);
                      volatile double d =
                          negative ? static_cast<double>(s) : static_cast<double>(u);
                      return type == "f32" ? bits<float>(f) : bits<double>(d);
                    });
                  });
      }
}

void between_floats(Table& table) {
  for (Mode mode : kModes) {
    for (std::string from : {"f32", "f64"})
      table.add(
          Row{fmt::format("cvt.{}.f16.{} $0, $1;", mode.name, from), {"f16"}, {from}, Element::F16},
          [=](const uint64_t* in) {
            return to_half(DType::F16, read_float(from, in[0]), mode.fenv);
          });
    for (bool ftz : {false, true})
      table.add(Row{fmt::format("cvt.{}{}.f32.f64 $0, $1;", mode.name, ftz ? ".ftz" : ""),
                    {"f32"},
                    {"f64"},
                    Element::F32},
                [=](const uint64_t* in) {
                  float result = in_mode(mode.fenv, [&] {
                    volatile double x = as<double>(in[0]);
                    volatile float rounded = static_cast<float>(x);
                    return float{rounded};
                  });
                  return bits(ftz ? flushed(result) : result);
                });
    table.add(
        Row{fmt::format("cvt.{}i.f16.f16 $0, $1;", mode.name), {"f16"}, {"f16"}, Element::F16},
        [=](const uint64_t* in) {
          return to_half(DType::F16, integral(from_half(DType::F16, in[0]), mode.fenv));
        });
    table.add(
        Row{fmt::format("cvt.{}i.f32.f32 $0, $1;", mode.name), {"f32"}, {"f32"}, Element::F32},
        [=](const uint64_t* in) {
          return bits(static_cast<float>(integral(as<float>(in[0]), mode.fenv)));
        });
    table.add(
        Row{fmt::format("cvt.{}i.f64.f64 $0, $1;", mode.name), {"f64"}, {"f64"}, Element::F64},
        [=](const uint64_t* in) { return bits(integral(as<double>(in[0]), mode.fenv)); });
  }
  for (int i : {0, 1})
    table.add(
        Row{fmt::format("cvt.{}.bf16.f32 $0, $1;", kModes[i].name),
            {"bf16"},
            {"f32"},
            Element::BF16},
        [=](const uint64_t* in) { return to_half(DType::BF16, as<float>(in[0]), kModes[i].fenv); });
  for (std::string from : {"f16", "bf16"})
    table.add(
        Row{.text = fmt::format("cvt.f32.{} $0, $1;", from),
            .results = {"f32"},
            .operands = {from},
            .element = Element::F32,
            .target = from == "bf16" ? 90 : 80},
        [=](const uint64_t* in) { return bits(static_cast<float>(read_float(from, in[0]))); });
  for (std::string from : {"f16", "f32"})
    table.add(Row{fmt::format("cvt.f64.{} $0, $1;", from), {"f64"}, {from}, Element::F64},
              [=](const uint64_t* in) { return bits(read_float(from, in[0])); });
  for (bool ftz : {false, true})
    table.add(Row{fmt::format("cvt{}.sat.f32.f32 $0, $1;", ftz ? ".ftz" : ""),
                  {"f32"},
                  {"f32"},
                  Element::F32},
              [=](const uint64_t* in) {
                float x = as<float>(in[0]);
                return bits(saturated(ftz ? flushed(x) : x));
              });
  table.add(
      Row{"cvt.rna.tf32.f32 $0, $1; and.b32 $0, $0, 0xffffe000;", {"b32"}, {"f32"}, Element::F32},
      [](const uint64_t* in) {  // 10 bits of fraction, ties away from 0
        bool finite = std::isfinite(as<float>(in[0]));
        return (finite ? in[0] + 0x1000 : in[0]) & 0xffffe000;
      });
}

void pairs(Table& table) {
  for (DType type : {DType::F16, DType::BF16})
    for (int i : {0, 1})
      for (bool relu : {false, true})
        table.add(Row{fmt::format("cvt.{}{}.{}x2.f32 $0, $1, $2;", kModes[i].name,
                                  relu ? ".relu" : "", name(type)),
                      {"b32"},
                      {"f32", "f32"},
                      type == DType::F16 ? Element::F16x2 : Element::BF16x2},
                  [=](const uint64_t* in) {
                    auto part = [&](uint64_t slot) {
                      double x = as<float>(slot);
                      return to_half(type, relu && x <= 0 ? 0.0 : x, kModes[i].fenv);
                    };
                    return part(in[0]) << 16 | part(in[1]);
                  });
  for (DType type : {DType::E4M3, DType::E5M2}) {
    auto byte = [=](double x, bool relu) {
      if (std::isnan(x)) return uint64_t{0x7f};
      double most = type == DType::E4M3 ? 448 : 57344;  // also for infinities
      return uint64_t{to_bits8(type, relu && x <= 0 ? 0.0 : std::clamp(x, -most, most))};
    };
    for (bool relu : {false, true}) {
      std::string end = fmt::format("satfinite{}.{}x2", relu ? ".relu" : "", name(type));
      // Most values within the range of the type.
      auto value = [=](size_t, size_t, std::mt19937_64& random) {
        if (random() % 4 == 0) return random_value("f32", random);
        return (random() & 0x80000000) | (0x3a000000 + random() % 0x0a000000);
      };
      table.add(Row{.text = "cvt.rn." + end + ".f32 $0, $1, $2;",
                    .results = {"b16"},
                    .operands = {"f32", "f32"},
                    .target = 89,
                    .value = value},
                [=](const uint64_t* in) {
                  return byte(as<float>(in[0]), relu) << 8 | byte(as<float>(in[1]), relu);
                });
      table.add(Row{.text = "cvt.rn." + end + ".f16x2 $0, $1;",
                    .results = {"b16"},
                    .operands = {"f16x2"},
                    .target = 89},
                [=](const uint64_t* in) {
                  return byte(from_half(DType::F16, in[0] >> 16 & 0xffff), relu) << 8 |
                         byte(from_half(DType::F16, in[0] & 0xffff), relu);
                });
      table.add(
          Row{.text = fmt::format("cvt.rn{}.f16x2.{}x2 $0, $1;", relu ? ".relu" : "", name(type)),
              .results = {"b32"},
              .operands = {"b16"},
              .element = Element::F16x2,
              .target = 89},
          [=](const uint64_t* in) {
            auto part = [&](uint64_t x) {
              double value = from_bits8(type, static_cast<uint8_t>(x));
              return to_half(DType::F16, relu && value <= 0 ? 0.0 : value);
            };
            return part(in[0] >> 8 & 0xff) << 16 | part(in[0] & 0xff);
          });
    }
  }
}

}  // namespace

void add_convert(Table& table) {
  between_integers(table);
  between_floats_and_integers(table);
  between_floats(table);
  pairs(table);
}

}  // namespace kiln::conformance
