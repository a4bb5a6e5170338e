// Reads the text form of a kernel.
#pragma once

#include <string>
#include <string_view>

#include "ir/kernel.h"

namespace kiln {

// `file` names the text in locations: ops without ` at "file":line` get the text's own line.
// UserError with the line, the text of the line and a caret under what is wrong.
Kernel parse(std::string_view text, std::string_view file = "<text>");

}  // namespace kiln
