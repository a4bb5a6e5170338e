// Pieces that the printer, the parser and messages share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace kiln {

bool is_name_start(char c);           // [A-Za-z_]
bool is_name_part(char c);            // [A-Za-z0-9_.]
bool is_name(std::string_view text);  // a start and any parts: what may follow % and @

// In double quotes; quotes, backslashes and control characters escaped.
std::string quoted(std::string_view text);

// The shortest text that reads back as this double, and reads as a float: `1.0`, `-inf`, `nan`.
std::string float_text(double value);

// The candidate that `word` is most likely a misspelling of; empty if none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace kiln
