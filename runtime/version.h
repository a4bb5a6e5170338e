// Which Kiln this is.
#pragma once

#include <string_view>

// Of these headers; the build takes its version from here.
#define KILN_VERSION_MAJOR 0
#define KILN_VERSION_MINOR 1
#define KILN_VERSION_PATCH 0

namespace kiln {

std::string_view version();   // of the library: "0.1.0"
std::string_view build_id();  // hash of the compiler's sources; part of cache keys

}  // namespace kiln
