// Which Kiln this is.
#pragma once

#include <string_view>

namespace kiln {

std::string_view version();   // "0.1.0"
std::string_view build_id();  // hash of the compiler's sources; part of cache keys

}  // namespace kiln
