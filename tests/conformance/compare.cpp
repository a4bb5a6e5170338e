// setp, set, selp, slct.
#include <fmt/format.h>

#include "tests/conformance/rounding.h"

namespace kiln::conformance {
namespace {

// -1 less, 0 equal, 1 greater, 2 unordered.
template <class T>
int order(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return 2;
  return a < b ? -1 : a > b;
}

bool holds(std::string_view op, int order) {
  bool unordered = order == 2;
  if (op == "num") return !unordered;
  if (op == "nan") return unordered;
  if (op.size() == 3 && op[2] == 'u') return unordered || holds(op.substr(0, 2), order);
  if (unordered) return false;
  if (op == "eq") return order == 0;
  if (op == "ne") return order != 0;
  if (op == "lt" || op == "lo") return order < 0;
  if (op == "le" || op == "ls") return order <= 0;
  if (op == "gt" || op == "hi") return order > 0;
  return order >= 0;  // ge, hs
}

const std::vector<std::string> kSigned = {"eq", "ne", "lt", "le", "gt", "ge"};
const std::vector<std::string> kUnsigned = {"eq", "ne", "lt", "le", "gt",
                                            "ge", "lo", "ls", "hi", "hs"};
const std::vector<std::string> kFloat = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                         "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};

template <class F>
void comparisons(Table& table, const std::string& type, const std::vector<std::string>& ops, F read,
                 const std::string& modifier = "", int target = 80) {
  for (const std::string& op : ops)
    table.add(
        Row{.text = fmt::format("setp.{}{}.{} %p1, $1, $2; selp.u32 $0, 1, 0, %p1;", op, modifier,
                                type),
            .results = {"u32"},
            .operands = {type, type},
            .target = target,
            .value =
                [type](size_t, size_t i, std::mt19937_64& random) {
                  // Often the same as before, for equality.
                  static uint64_t last = 0;
                  if (i == 0 || random() % 4 != 0) last = random_value(type, random);
                  return last;
                }},
        [=](const uint64_t* in) { return uint64_t{holds(op, order(read(in[0]), read(in[1])))}; });
}

void combined(Table& table) {
  // p = (a < b) op c, q = !(a < b) op c
  for (const char* op : {"and", "or", "xor"})
    table.add(Row{fmt::format("setp.ne.u32 %p3, $3, 0; setp.lt.{}.s32 %p1|%p2, $1, $2, %p3;"
                              "selp.u32 $0, 1, 0, %p1; selp.u32 %r1, 2, 0, %p2;"
                              "add.u32 $0, $0, %r1;",
                              op),
                  {"u32"},
                  {"s32", "s32", "u32"}},
              [=](const uint64_t* in) {
                bool less = as<int32_t>(in[0]) < as<int32_t>(in[1]), c = in[2] != 0;
                auto combine = [&](bool x) {
                  return std::string_view(op) == "and"  ? x && c
                         : std::string_view(op) == "or" ? x || c
                                                        : x != c;
                };
                return uint64_t{combine(less)} + 2 * uint64_t{combine(!less)};
              });
  for (const char* op : {"eq", "neu", "lt", "geu", "nan"})
    table.add(Row{fmt::format("setp.{}.f16x2 %p1|%p2, $1, $2; selp.u32 $0, 1, 0, %p1;"
                              "selp.u32 %r1, 2, 0, %p2; add.u32 $0, $0, %r1;",
                              op),
                  {"u32"},
                  {"f16x2", "f16x2"}},
              [=](const uint64_t* in) {
                auto half = [&](int shift) {
                  return uint64_t{holds(op, order(from_half(DType::F16, in[0] >> shift & 0xffff),
                                                  from_half(DType::F16, in[1] >> shift & 0xffff)))};
                };
                return half(0) + 2 * half(16);
              });
  for (const char* op : {"lt", "ge", "ne"}) {
    table.add(Row{fmt::format("set.{}.u32.s32 $0, $1, $2;", op), {"u32"}, {"s32", "s32"}},
              [=](const uint64_t* in) -> uint64_t {
                return holds(op, order(as<int32_t>(in[0]), as<int32_t>(in[1]))) ? 0xffffffff : 0;
              });
    table.add(Row{fmt::format("set.{}.u32.f32 $0, $1, $2;", op), {"u32"}, {"f32", "f32"}},
              [=](const uint64_t* in) -> uint64_t {
                return holds(op, order(as<float>(in[0]), as<float>(in[1]))) ? 0xffffffff : 0;
              });
    table.add(Row{fmt::format("set.{}.f32.f32 $0, $1, $2;", op), {"f32"}, {"f32", "f32"}},
              [=](const uint64_t* in) -> uint64_t {
                return holds(op, order(as<float>(in[0]), as<float>(in[1]))) ? 0x3f800000 : 0;
              });
    table.add(Row{fmt::format("set.{}.f16x2.f16x2 $0, $1, $2;", op), {"b32"}, {"f16x2", "f16x2"}},
              [=](const uint64_t* in) {
                uint64_t all = 0;
                for (int shift : {0, 16}) {
                  double a = from_half(DType::F16, in[0] >> shift & 0xffff);
                  double b = from_half(DType::F16, in[1] >> shift & 0xffff);
                  all |= (holds(op, order(a, b)) ? uint64_t{0x3c00} : 0) << shift;
                }
                return all;
              });
  }
}

}  // namespace

void add_compare(Table& table) {
  comparisons(table, "s16", kSigned, as<int16_t>);
  comparisons(table, "s32", kSigned, as<int32_t>);
  comparisons(table, "s64", kSigned, as<int64_t>);
  comparisons(table, "u16", kUnsigned, as<uint16_t>);
  comparisons(table, "u32", kUnsigned, as<uint32_t>);
  comparisons(table, "u64", kUnsigned, as<uint64_t>);
  comparisons(table, "b32", {"eq", "ne"}, as<uint32_t>);
  comparisons(table, "b64", {"eq", "ne"}, as<uint64_t>);
  comparisons(table, "f16", kFloat, [](uint64_t x) { return from_half(DType::F16, x); });
  comparisons(
      table, "f16", kFloat,
      [](uint64_t x) {
        double value = from_half(DType::F16, x);
        return std::abs(value) < 0x1p-14 ? 0.0 : value;
      },
      ".ftz");
  comparisons(
      table, "bf16", kFloat, [](uint64_t x) { return from_half(DType::BF16, x); }, "", 90);
  comparisons(table, "f32", kFloat, as<float>);
  comparisons(
      table, "f32", kFloat, [](uint64_t x) { return flushed(as<float>(x)); }, ".ftz");
  comparisons(table, "f64", kFloat, as<double>);
  combined(table);
  for (std::string type : {"b16", "b32", "b64", "f32", "f64"})
    table.add(Row{fmt::format("setp.lt.s32 %p1, $3, 40; selp.{} $0, $1, $2, %p1;", type),
                  {type},
                  {type, type, "s32"}},
              [](const uint64_t* in) { return as<int32_t>(in[2]) < 40 ? in[0] : in[1]; });
  for (std::string type : {"b32", "u64", "f32"}) {
    table.add(Row{fmt::format("slct.{}.s32 $0, $1, $2, $3;", type), {type}, {type, type, "s32"}},
              [](const uint64_t* in) { return as<int32_t>(in[2]) >= 0 ? in[0] : in[1]; });
    table.add(Row{fmt::format("slct.{}.f32 $0, $1, $2, $3;", type), {type}, {type, type, "f32"}},
              [](const uint64_t* in) { return as<float>(in[2]) >= 0 ? in[0] : in[1]; });
  }
}

}  // namespace kiln::conformance
