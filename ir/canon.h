// Canonical form: two traces of one program are one text, whatever order the C++ compiler evaluated
// operands in; its hash is the cache key.
#pragma once

#include <cstdint>
#include <string>

#include "ir/kernel.h"

namespace kiln {

// Orders pure ops and loads depth first from the effects that need them, drops those without uses,
// renumbers everything. Ops with effects keep their order; a load stays in its region and between
// the writes of its base that it stood between.
Kernel canonical(const Kernel& kernel);

// 128-bit hash (32 hex digits) of text; of the canonical text without names of files and lines.
std::string hash_text(std::string_view text);
std::string hash(const Kernel& kernel);

}  // namespace kiln
