#include "ir/error.h"

#include <fmt/format.h>

#include <mutex>
#include <set>

namespace kiln {

const char* intern(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> strings;
  std::lock_guard lock(mutex);
  auto it = strings.find(text);
  if (it == strings.end()) it = strings.emplace(text).first;
  return it->c_str();
}

std::string str(const Loc& loc) {
  return loc.known() ? fmt::format("{}:{}", loc.file, loc.line) : "<unknown>";
}

static std::string render(const char* kind, const Loc& loc, const std::string& message,
                          const std::string& hint) {
  std::string text = loc.known() ? str(loc) + ": " : "";
  text += fmt::format("{}: {}", kind, message);
  if (!hint.empty()) text += "\n  try: " + hint;
  return text;
}

Error::Error(const char* kind, Loc loc, std::string message, std::string hint)
    : std::runtime_error(render(kind, loc, message, hint)),
      loc_(loc),
      message_(std::move(message)),
      hint_(std::move(hint)) {}

}  // namespace kiln
