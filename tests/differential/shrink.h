// Programs with smaller extents and plainer dtypes.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace kiln::differential {

// Ways to change a kernel throughout: an extent to a smaller one, a dtype to a plainer one. Each
// gives none if what it changes is not there, or nothing legal comes of it.
using Shrinking = std::function<std::optional<Kernel>(const Kernel&)>;
std::vector<Shrinking> shrinkings(const Kernel& kernel);

}  // namespace kiln::differential
