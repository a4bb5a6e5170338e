#include "codegen/nvptx_text_impl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace kiln::nvptx {
namespace {

struct Minimum {
  std::string_view op;  // "min" or "max"
  bool is_signed;
  std::array<std::string_view, 3> operands;  // the result first
};

// Of `max.u16 %rs3, %rs1, 5;` behind a tab, with another before the operands.
std::optional<Minimum> minimum_of(std::string_view line) {
  if (line.size() < 9 || line[0] != '\t' || !line.ends_with(';')) return std::nullopt;
  const std::string_view op = line.substr(1, 3), type = line.substr(4, 5);
  const bool is_signed = type == ".s16 ";
  if ((op != "min" && op != "max") || (!is_signed && type != ".u16 ")) return std::nullopt;
  Minimum found{op, is_signed, {}};
  std::string_view rest = line.substr(10, line.size() - 11);
  for (std::string_view& operand : found.operands) {
    const size_t comma = rest.find(", ");
    operand = rest.substr(0, comma);
    rest = comma == rest.npos ? "" : rest.substr(comma + 2);
  }
  return found;
}

std::string widened(const Minimum& at, int to) {
  const std::string_view operand = at.operands[static_cast<size_t>(to)];
  if (operand.starts_with('%'))
    return fmt::format("cvt.{} \t%wide{}, {};", at.is_signed ? "s32.s16" : "u32.u16", to, operand);
  const int64_t number = std::stoll(std::string(operand));
  return fmt::format("mov.b32 \t%wide{}, {};", to, at.is_signed ? number : number & 0xffff);
}

}  // namespace

std::string without_half_flushes(std::string ptx) {
  constexpr std::string_view kFlush = ".ftz";
  for (const std::string_view unwanted : {".ftz.bf16", ".ftz.f16"})
    for (size_t at = 0; (at = ptx.find(unwanted, at)) != ptx.npos;) ptx.erase(at, kFlush.size());
  return ptx;
}

std::string with_wide_minima(const std::string& ptx) {
  std::string all;
  all.reserve(ptx.size());
  for (size_t begin = 0; begin < ptx.size();) {
    const size_t end = std::min(ptx.find('\n', begin), ptx.size());
    const std::string_view line = std::string_view(ptx).substr(begin, end - begin);
    if (const std::optional<Minimum> at = minimum_of(line)) {
      all += fmt::format(
          "\t{{\n\t.reg .b32 \t%wide<3>;\n\t{}\n\t{}\n\t{}.{}32 \t%wide0, %wide1, %wide2;\n"
          "\tcvt.u16.u32 \t{}, %wide0;\n\t}}",
          widened(*at, 1), widened(*at, 2), at->op, at->is_signed ? 's' : 'u', at->operands[0]);
    } else {
      all += line;
    }
    if (end < ptx.size()) all += '\n';
    begin = end + 1;
  }
  return all;
}

}  // namespace kiln::nvptx
