// Makes a failing program smaller.
#pragma once

#include <functional>

#include "tests/differential/generator.h"

namespace kiln::differential {

// The smallest program found that is still legal and for which `fails` still holds: ops taken out,
// branches and loops replaced by a round of them, values by operands or constants, attributes by
// their defaults, extents, dtypes and dims by smaller or plainer ones. `fails` must not throw.
Program reduce(const Program& program, const std::function<bool(const Program&)>& fails);

}  // namespace kiln::differential
