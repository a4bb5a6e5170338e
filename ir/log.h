// All that the library has to say while it runs, through one function that its user may replace.
// It prints nothing by itself, and nothing ever to standard output.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace kiln {

enum class LogLevel : uint8_t {
  Info,     // what was compiled, what was loaded
  Warning,  // code that spills; something asked for that could not be done
  Output,   // what a `watch` in a kernel writes: whole lines, the last ended
};

using Log = std::function<void(LogLevel, std::string_view text)>;

// Called from then on, from any thread, several at once; what it throws is lost. Null is the
// default again: warnings (with "kiln: " before and the line ended) and output go to standard
// error.
void set_log(Log log);

void log_message(LogLevel level, std::string_view text) noexcept;

}  // namespace kiln
