// The place in the user's program that an op came from.
#pragma once

#include <string>
#include <string_view>

namespace kiln {

// File and line. `file` is a string literal or an interned string: it never dangles.
struct Loc {
  const char* file = "";
  int line = 0;

  // Default argument of every function that records an op. Not std::source_location: clang 14 with
  // libstdc++ 12 has none.
  static constexpr Loc here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
  bool known() const { return line > 0; }
};

// A string that lives as long as the process; for locations read from text.
const char* intern(std::string_view text);

// "file:line", or "<unknown>".
std::string str(const Loc& loc);

}  // namespace kiln
