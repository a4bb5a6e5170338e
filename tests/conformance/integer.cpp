// Integer arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

__extension__ using Wide = __int128;

template <class T>
uint64_t wrapped(Wide value) {
  return bits(static_cast<T>(value));
}

// Rows of two and three operands of one type; T is its C++ type.
template <class T>
struct Typed {
  Table& table;
  std::string type;

  template <class F>
  void two(const std::string& op, F compute) {
    table.add(Row{.text = fmt::format("{}.{} $0, $1, $2;", op, type),
                  .results = {type},
                  .operands = {type, type}},
              [=](const uint64_t* in) { return wrapped<T>(compute(as<T>(in[0]), as<T>(in[1]))); });
  }
  // A nonzero divisor, and not the overflow of the smallest value by -1.
  template <class F>
  void division(const std::string& op, F compute) {
    std::string name = type;
    auto divisor = [name](size_t, size_t i, std::mt19937_64& random) {
      uint64_t value = random_value(name, random);
      bool bad = i == 1 && (as<T>(value) == 0 || as<T>(value) == static_cast<T>(-1));
      return bad ? uint64_t{7} : value;
    };
    table.add(Row{.text = fmt::format("{}.{} $0, $1, $2;", op, type),
                  .results = {type},
                  .operands = {type, type},
                  .value = divisor},
              [=](const uint64_t* in) { return wrapped<T>(compute(as<T>(in[0]), as<T>(in[1]))); });
  }
  template <class F>
  void one(const std::string& op, F compute) {
    table.add(
        Row{.text = fmt::format("{}.{} $0, $1;", op, type), .results = {type}, .operands = {type}},
        [=](const uint64_t* in) { return wrapped<T>(compute(as<T>(in[0]))); });
  }
};

bool is_signed(std::string_view type) {
  return type[0] == 's';
}

// The upper half of the product: 64-bit unsigned products exceed Wide's sign only in the top bit,
// which the conversion to T keeps.
template <class T>
Wide high(T a, T b) {
  using Product = std::conditional_t<std::is_signed_v<T>, Wide, __uint128_t>;
  return static_cast<Wide>((static_cast<Product>(a) * static_cast<Product>(b)) >> (8 * sizeof(T)));
}

template <class T>
void arithmetic(Table& table, const std::string& type) {
  Typed<T> rows{table, type};
  using W = Wide;
  rows.two("add", [](T a, T b) { return W{a} + W{b}; });
  rows.two("sub", [](T a, T b) { return W{a} - W{b}; });
  rows.two("mul.lo", [](T a, T b) {
    return static_cast<W>(static_cast<__uint128_t>(a) * static_cast<__uint128_t>(b));
  });
  rows.two("mul.hi", [](T a, T b) { return high(a, b); });
  rows.two("min", [](T a, T b) { return W{std::min(a, b)}; });
  rows.two("max", [](T a, T b) { return W{std::max(a, b)}; });
  rows.division("div", [](T a, T b) { return W{a} / W{b}; });
  rows.division("rem", [](T a, T b) { return W{a} % W{b}; });
  for (bool upper : {false, true})
    table.add(Row{.text = fmt::format("mad.{}.{} $0, $1, $2, $3;", upper ? "hi" : "lo", type),
                  .results = {type},
                  .operands = {type, type, type}},
              [=](const uint64_t* in) {
                T a = as<T>(in[0]), b = as<T>(in[1]), c = as<T>(in[2]);
                W product =
                    upper
                        ? high(a, b)
                        : static_cast<W>(static_cast<__uint128_t>(a) * static_cast<__uint128_t>(b));
                return wrapped<T>(static_cast<W>(static_cast<__uint128_t>(product) +
                                                 static_cast<__uint128_t>(c)));
              });
  table.add(Row{.text = fmt::format("sad.{} $0, $1, $2, $3;", type),
                .results = {type},
                .operands = {type, type, type}},
            [](const uint64_t* in) {
              T a = as<T>(in[0]), b = as<T>(in[1]), c = as<T>(in[2]);
              return wrapped<T>(W{c} + (a < b ? W{b} - W{a} : W{a} - W{b}));
            });
  if (is_signed(type)) {
    rows.one("neg", [](T a) { return -W{a}; });
    rows.one("abs", [](T a) { return a < 0 ? -W{a} : W{a}; });
  }
}

// mul.wide and mad.wide: T to the type W of twice the bits.
template <class T, class W>
void widening(Table& table, const std::string& type, const std::string& wide) {
  table.add(Row{.text = fmt::format("mul.wide.{} $0, $1, $2;", type),
                .results = {wide},
                .operands = {type, type}},
            [](const uint64_t* in) { return wrapped<W>(Wide{as<T>(in[0])} * Wide{as<T>(in[1])}); });
  table.add(Row{.text = fmt::format("mad.wide.{} $0, $1, $2, $3;", type),
                .results = {wide},
                .operands = {type, type, wide}},
            [](const uint64_t* in) {
              return wrapped<W>(Wide{as<T>(in[0])} * Wide{as<T>(in[1])} + Wide{as<W>(in[2])});
            });
}

// 32-bit only: saturation, carries, 24 bits, dot products.
void special(Table& table) {
  auto saturated = [](Wide value) {
    Wide least = std::numeric_limits<int32_t>::min(), most = std::numeric_limits<int32_t>::max();
    return wrapped<int32_t>(std::clamp(value, least, most));
  };
  auto s32 = [](uint64_t slot) { return Wide{as<int32_t>(slot)}; };
  table.add(Row{"add.sat.s32 $0, $1, $2;", {"s32"}, {"s32", "s32"}},
            [=](const uint64_t* in) { return saturated(s32(in[0]) + s32(in[1])); });
  table.add(Row{"sub.sat.s32 $0, $1, $2;", {"s32"}, {"s32", "s32"}},
            [=](const uint64_t* in) { return saturated(s32(in[0]) - s32(in[1])); });
  table.add(Row{"mad.hi.sat.s32 $0, $1, $2, $3;", {"s32"}, {"s32", "s32", "s32"}},
            [=](const uint64_t* in) {
              return saturated(((s32(in[0]) * s32(in[1])) >> 32) + s32(in[2]));
            });
  table.add(
      Row{"add.cc.u32 %r1, $1, $2; addc.u32 $0, $3, $4;", {"u32"}, {"u32", "u32", "u32", "u32"}},
      [](const uint64_t* in) {
        return wrapped<uint32_t>(Wide{in[2]} + in[3] + ((in[0] + in[1]) >> 32));
      });
  table.add(
      Row{"sub.cc.u32 %r1, $1, $2; subc.u32 $0, $3, $4;", {"u32"}, {"u32", "u32", "u32", "u32"}},
      [](const uint64_t* in) { return wrapped<uint32_t>(Wide{in[2]} - in[3] - (in[0] < in[1])); });
  table.add(Row{"mad.lo.cc.u32 %r1, $1, $2, $3; madc.hi.u32 $0, $1, $2, $4;",
                {"u32"},
                {"u32", "u32", "u32", "u32"}},
            [](const uint64_t* in) {
              uint64_t product = in[0] * in[1], carry = ((product & 0xffffffff) + in[2]) >> 32;
              return wrapped<uint32_t>(Wide{product >> 32} + in[3] + carry);
            });
  auto u24 = [](uint64_t x) { return static_cast<Wide>(x & 0xffffff); };
  auto s24 = [](uint64_t x) { return Wide{as<int32_t>(x << 8) >> 8}; };
  for (int upper : {0, 1})
    for (bool is_signed : {false, true}) {
      std::string end = fmt::format("24.{}.{}", upper ? "hi" : "lo", is_signed ? "s32" : "u32");
      auto product = [=](const uint64_t* in) {
        Wide all = is_signed ? s24(in[0]) * s24(in[1]) : u24(in[0]) * u24(in[1]);
        return upper ? all >> 16 : all;
      };
      table.add(Row{"mul" + end + " $0, $1, $2;", {"b32"}, {"b32", "b32"}},
                [=](const uint64_t* in) { return wrapped<uint32_t>(product(in)); });
      table.add(Row{"mad" + end + " $0, $1, $2, $3;", {"b32"}, {"b32", "b32", "b32"}},
                [=](const uint64_t* in) { return wrapped<uint32_t>(product(in) + Wide{in[2]}); });
    }
  for (bool sa : {false, true})
    for (bool sb : {false, true}) {
      std::string types = fmt::format("{}.{}", sa ? "s32" : "u32", sb ? "s32" : "u32");
      auto byte = [](bool is_signed, uint64_t x, int i) {
        uint64_t part = x >> (8 * i) & 0xff;
        return is_signed ? Wide{as<int8_t>(part)} : static_cast<Wide>(part);
      };
      auto half = [](bool is_signed, uint64_t x, int i) {
        uint64_t part = x >> (16 * i) & 0xffff;
        return is_signed ? Wide{as<int16_t>(part)} : static_cast<Wide>(part);
      };
      table.add(Row{"dp4a." + types + " $0, $1, $2, $3;", {"b32"}, {"b32", "b32", "b32"}},
                [=](const uint64_t* in) {
                  Wide sum = Wide{in[2]};
                  for (int i = 0; i < 4; ++i) sum += byte(sa, in[0], i) * byte(sb, in[1], i);
                  return wrapped<uint32_t>(sum);
                });
      for (int upper : {0, 1})
        table.add(Row{fmt::format("dp2a.{}.{} $0, $1, $2, $3;", upper ? "hi" : "lo", types),
                      {"b32"},
                      {"b32", "b32", "b32"}},
                  [=](const uint64_t* in) {
                    Wide sum = Wide{in[2]};
                    for (int i = 0; i < 2; ++i)
                      sum += half(sa, in[0], i) * byte(sb, in[1], 2 * upper + i);
                    return wrapped<uint32_t>(sum);
                  });
    }
}

}  // namespace

void add_integer(Table& table) {
  arithmetic<int16_t>(table, "s16");
  arithmetic<uint16_t>(table, "u16");
  arithmetic<int32_t>(table, "s32");
  arithmetic<uint32_t>(table, "u32");
  arithmetic<int64_t>(table, "s64");
  arithmetic<uint64_t>(table, "u64");
  widening<int16_t, int32_t>(table, "s16", "s32");
  widening<uint16_t, uint32_t>(table, "u16", "u32");
  widening<int32_t, int64_t>(table, "s32", "s64");
  widening<uint32_t, uint64_t>(table, "u32", "u64");
  special(table);
}

}  // namespace kiln::conformance
