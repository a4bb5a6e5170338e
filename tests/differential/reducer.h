// Makes a failing program smaller.
#pragma once

#include <functional>

#include "ir/kernel.h"

namespace kiln::differential {

// The smallest program found, by taking out ops, branches and loops one at a time, that is still
// legal and for which `fails` still holds. `fails` must not throw.
Kernel reduce(const Kernel& kernel, const std::function<bool(const Kernel&)>& fails);

}  // namespace kiln::differential
