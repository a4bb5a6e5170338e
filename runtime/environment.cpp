#include "runtime/environment.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>

#include "ir/error.h"

namespace kiln {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return value;
}

static int shift_of(std::string_view suffix) {
  if (suffix.empty()) return 0;
  if (suffix.size() > 1) return -1;
  switch (suffix[0]) {
    case 'K':
    case 'k': return 10;
    case 'M':
    case 'm': return 20;
    case 'G':
    case 'g': return 30;
    default: return -1;
  }
}

std::optional<int64_t> environment_number(const char* name, int64_t low, int64_t high,
                                          bool suffixes) {
  auto text = environment(name);
  if (!text) return std::nullopt;
  int64_t value = 0;
  const char* end = text->data() + text->size();
  auto [rest, error] = std::from_chars(text->data(), end, value);
  int shift = suffixes ? shift_of({rest, static_cast<size_t>(end - rest)}) : rest == end ? 0 : -1;
  if (error != std::errc() || shift < 0 || value < low || value > high >> shift)
    throw UserError(fmt::format("{}: expected a whole number from {} to {}{}, got '{}'", name, low,
                                high, suffixes ? " (suffixes K, M, G)" : "", *text));
  return value << shift;
}

}  // namespace kiln
