// The KILN_* environment variables, read when they are asked for. README.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kiln {

std::optional<std::string> environment(const char* name);  // none if unset or empty

// A whole number from `low` to `high`, with a suffix K, M or G (powers of 1024) if `suffixes`.
// UserError naming the variable if it is anything else.
std::optional<int64_t> environment_number(const char* name, int64_t low, int64_t high,
                                          bool suffixes = false);

}  // namespace kiln
