// Canonical form: two traces of one program are one text, whatever order the C++ compiler evaluated
// operands in; its hash is the cache key.
#pragma once

#include <cstdint>
#include <string>

#include "ir/kernel.h"

namespace kiln {

// Orders pure ops depth first from the effects that need them, drops pure ops without uses, renumbers
// everything. Ops with effects keep their order; loads stay between the writes they stood between.
Kernel canonical(const Kernel& kernel);

// 128-bit hash (32 hex digits) of text; of the canonical text without names of files and lines.
std::string hash_text(std::string_view text);
std::string hash(const Kernel& kernel);

}  // namespace kiln
