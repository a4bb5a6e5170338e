#include "ir/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/memory.h"

namespace kiln {
namespace {

constexpr int64_t kMostRows = 64, kMostColumns = 64;

std::string number(const std::optional<Scalar>& value) {
  if (!value) return "?";
  return is_float(value->dtype) ? fmt::format("{:g}", value->f) : fmt::format("{}", value->i);
}

}  // namespace

UserError assertion_error(Loc loc, const std::string& text,
                          std::optional<std::array<int64_t, 3>> block) {
  std::string message = "device_assert: " + (text.empty() ? "the condition does not hold" : text);
  if (block)
    message += fmt::format(" (first in block {}, {}, {})", (*block)[0], (*block)[1], (*block)[2]);
  return UserError(loc, message);
}

std::string watch_headline(Loc loc, const std::string& text) {
  return fmt::format("{}: watch{}{}", str(loc), text.empty() ? "" : " ", text);
}

std::string watch_text(const std::string& headline, const std::array<int64_t, 3>& block,
                       const Type& type,
                       const std::function<std::optional<Scalar>(int64_t)>& element) {
  const int64_t columns = type.shape.empty() ? 1 : type.shape.back();
  const int64_t rows = columns > 0 ? count(type.shape) / columns : 0;
  std::string all =
      fmt::format("{}, block {}, {}, {}: {}\n", headline, block[0], block[1], block[2],
                  str(Type::tile(type.space, type.dtype, type.shape)));  // of a view too
  for (int64_t row = 0; row < std::min(rows, kMostRows); ++row) {
    for (int64_t column = 0; column < std::min(columns, kMostColumns); ++column)
      all += fmt::format(" {}", number(element(row * columns + column)));
    all += columns > kMostColumns ? " ...\n" : "\n";
  }
  if (rows > kMostRows) all += fmt::format(" ... {} rows more\n", rows - kMostRows);
  return all;
}

}  // namespace kiln
