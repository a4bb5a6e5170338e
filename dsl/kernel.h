// From a C++ function to a kernel.
#pragma once

#include <functional>
#include <string>

#include "ir/kernel.h"

namespace kiln::inline dsl {

struct TraceOptions {
  bool fast_math = false;  // arithmetic may be contracted and approximated; infinities stay exact
};

// Runs `body` once and records what it does: a verified kernel in canonical form. UserError at the
// user's line for every mistake. Traces may nest; each sees only its own values.
Kernel trace(const std::string& name, TraceOptions options, const std::function<void()>& body,
             Loc loc = Loc::here());
Kernel trace(const std::string& name, const std::function<void()>& body, Loc loc = Loc::here());

}  // namespace kiln::inline dsl
