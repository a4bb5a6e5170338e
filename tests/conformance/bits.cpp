// Instructions on bits.
#include <fmt/format.h>

#include <algorithm>

#include "tests/conformance/table.h"

namespace kiln::conformance {
namespace {

uint64_t mask_of(unsigned width) {
  return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1;
}
int64_t extended(uint64_t value, unsigned width) {
  return static_cast<int64_t>(value << (64 - width)) >> (64 - width);
}

void logic(Table& table, unsigned width) {
  std::string type = fmt::format("b{}", width);
  auto two = [&](const std::string& op, auto compute) {
    table.add(Row{fmt::format("{}.{} $0, $1, $2;", op, type), {type}, {type, type}},
              [=](const uint64_t* in) { return compute(in[0], in[1]) & mask_of(width); });
  };
  two("and", [](uint64_t a, uint64_t b) { return a & b; });
  two("or", [](uint64_t a, uint64_t b) { return a | b; });
  two("xor", [](uint64_t a, uint64_t b) { return a ^ b; });
  table.add(Row{fmt::format("not.{} $0, $1;", type), {type}, {type}},
            [=](const uint64_t* in) { return ~in[0] & mask_of(width); });
  table.add(Row{fmt::format("cnot.{} $0, $1;", type), {type}, {type}},
            [](const uint64_t* in) { return uint64_t{in[0] == 0}; });
  // Amounts beyond the width act as the width.
  table.add(
      Row{fmt::format("shl.{} $0, $1, $2;", type), {type}, {type, "u32"}},
      [=](const uint64_t* in) { return in[1] >= width ? 0 : in[0] << in[1] & mask_of(width); });
  table.add(Row{fmt::format("shr.u{} $0, $1, $2;", width), {type}, {type, "u32"}},
            [=](const uint64_t* in) { return in[1] >= width ? 0 : in[0] >> in[1]; });
  table.add(Row{fmt::format("shr.s{} $0, $1, $2;", width), {type}, {type, "u32"}},
            [=](const uint64_t* in) {
              uint64_t amount = std::min<uint64_t>(in[1], width - 1);
              return static_cast<uint64_t>(extended(in[0], width) >> amount) & mask_of(width);
            });
}

uint64_t reversed(uint64_t value, unsigned width) {
  uint64_t result = 0;
  for (unsigned i = 0; i < width; ++i) result |= (value >> i & 1) << (width - 1 - i);
  return result;
}
// Place of the highest set bit, -1 if none.
int highest(uint64_t value) {
  int place = -1;
  for (int i = 0; i < 64; ++i)
    if (value >> i & 1) place = i;
  return place;
}

void counts(Table& table, unsigned width) {
  std::string b = fmt::format("b{}", width);
  table.add(Row{"popc." + b + " $0, $1;", {"u32"}, {b}}, [](const uint64_t* in) {
    uint64_t sum = 0;
    for (int i = 0; i < 64; ++i) sum += in[0] >> i & 1;
    return sum;
  });
  table.add(Row{"clz." + b + " $0, $1;", {"u32"}, {b}}, [=](const uint64_t* in) {
    return static_cast<uint64_t>(static_cast<int>(width) - 1 - highest(in[0]));
  });
  table.add(Row{"brev." + b + " $0, $1;", {b}, {b}},
            [=](const uint64_t* in) { return reversed(in[0], width); });
  for (bool is_signed : {false, true})
    for (bool amount : {false, true})
      table.add(Row{fmt::format("bfind{}.{}{} $0, $1;", amount ? ".shiftamt" : "",
                                is_signed ? 's' : 'u', width),
                    {"u32"},
                    {b}},
                [=](const uint64_t* in) {
                  bool negative = in[0] >> (width - 1) & 1;
                  int place = highest((is_signed && negative ? ~in[0] : in[0]) & mask_of(width));
                  if (amount && place >= 0) place = static_cast<int>(width) - 1 - place;
                  return uint64_t{static_cast<uint32_t>(place)};
                });
  // The manual's loops: position and length are their low 8 bits. It restricts both to 0 … 255, and
  // an H200 does not cut larger ones for 64-bit fields, so those are not asked for.
  const auto fields = [=](Row row, size_t first) {
    if (width == 64)
      row.value = [first](size_t, size_t i, std::mt19937_64& random) {
        return i < first ? random() : random() & 0xff;
      };
    return row;
  };
  for (bool is_signed : {false, true})
    table.add(fields(Row{fmt::format("bfe.{}{} $0, $1, $2, $3;", is_signed ? 's' : 'u', width),
                         {b},
                         {b, "u32", "u32"}},
                     1),
              [=](const uint64_t* in) {
                unsigned pos = in[1] & 0xff, len = in[2] & 0xff, msb = width - 1;
                uint64_t sign =
                    !is_signed || len == 0 ? 0 : in[0] >> std::min(pos + len - 1, msb) & 1;
                uint64_t result = 0;
                for (unsigned i = 0; i <= msb; ++i)
                  result |= (i < len && pos + i <= msb ? in[0] >> (pos + i) & 1 : sign) << i;
                return result;
              });
  table.add(fields(Row{"bfi." + b + " $0, $1, $2, $3, $4;", {b}, {b, b, "u32", "u32"}}, 2),
            [=](const uint64_t* in) {
              unsigned pos = in[2] & 0xff, len = in[3] & 0xff;
              uint64_t result = in[1];
              for (unsigned i = 0; i < len && pos + i < width; ++i) {
                result &= ~(uint64_t{1} << (pos + i));
                result |= (in[0] >> i & 1) << (pos + i);
              }
              return result;
            });
}

void permutes(Table& table) {
  auto byte_of = [](const uint64_t* in, uint64_t selector) {
    uint64_t all = in[0] | in[1] << 32, byte = all >> (8 * (selector & 7)) & 0xff;
    return selector & 8 ? (byte & 0x80 ? uint64_t{0xff} : 0) : byte;
  };
  auto row = [](const std::string& mode) {
    return Row{"prmt.b32" + mode + " $0, $1, $2, $3;", {"b32"}, {"b32", "b32", "b32"}};
  };
  auto add = [&](const std::string& mode, auto select) {
    table.add(row(mode), [=](const uint64_t* in) {
      uint64_t result = 0;
      for (unsigned i = 0; i < 4; ++i) result |= byte_of(in, select(in[2], i)) << (8 * i);
      return result;
    });
  };
  add("", [](uint64_t c, unsigned i) { return c >> (4 * i) & 15; });
  add(".f4e", [](uint64_t c, unsigned i) { return (c & 3) + i; });
  add(".b4e", [](uint64_t c, unsigned i) { return ((c & 3) - i) & 7; });
  add(".rc8", [](uint64_t c, unsigned) { return c & 3; });
  add(".ecl", [](uint64_t c, unsigned i) { return std::max<uint64_t>(i, c & 3); });
  add(".ecr", [](uint64_t c, unsigned i) { return std::min<uint64_t>(i, c & 3); });
  add(".rc16", [](uint64_t c, unsigned i) { return 2 * (c & 1) + i % 2; });
}

}  // namespace

void add_bits(Table& table) {
  for (unsigned width : {16u, 32u, 64u}) logic(table, width);
  for (unsigned width : {32u, 64u}) counts(table, width);
  permutes(table);
  for (bool left : {false, true})
    for (bool clamps : {false, true})
      table.add(Row{fmt::format("shf.{}.{}.b32 $0, $1, $2, $3;", left ? 'l' : 'r',
                                clamps ? "clamp" : "wrap"),
                    {"b32"},
                    {"b32", "b32", "u32"}},
                [=](const uint64_t* in) {
                  uint64_t n = clamps ? std::min<uint64_t>(in[2], 32) : in[2] & 31;
                  uint64_t both = in[1] << 32 | in[0];
                  return (left ? (both << n) >> 32 : both >> n) & 0xffffffff;
                });
  for (unsigned lut : {0x80u, 0x96u, 0xe8u, 0xcau, 0x1bu})
    table.add(
        Row{fmt::format("lop3.b32 $0, $1, $2, $3, {:#x};", lut), {"b32"}, {"b32", "b32", "b32"}},
        [=](const uint64_t* in) {
          uint64_t result = 0;
          for (int i = 0; i < 32; ++i) {
            uint64_t row = (in[0] >> i & 1) << 2 | (in[1] >> i & 1) << 1 | (in[2] >> i & 1);
            result |= uint64_t{lut >> row & 1} << i;
          }
          return result;
        });
  for (bool clamps : {false, true})
    table.add(Row{fmt::format("bmsk.{}.b32 $0, $1, $2;", clamps ? "clamp" : "wrap"),
                  {"b32"},
                  {"u32", "u32"}},
              [=](const uint64_t* in) {
                uint64_t at = clamps ? in[0] : in[0] & 31, size = clamps ? in[1] : in[1] & 31;
                uint64_t result = 0;
                for (uint64_t i = 0; i < 32; ++i)
                  if (i >= at && i - at < size) result |= uint64_t{1} << i;
                return result;
              });
}

}  // namespace kiln::conformance
