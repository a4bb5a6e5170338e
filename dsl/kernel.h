// From a C++ function to a kernel.
#pragma once

#include <concepts>
#include <functional>
#include <string>

#include "ir/kernel.h"

namespace kiln {
inline namespace dsl {

struct TraceOptions {
  bool fast_math = false;  // arithmetic may be contracted and approximated; infinities stay exact
  std::string note = {};   // what `kiln explain` is to say of the kernel
};

// Runs `body` once and records what it does: a verified kernel in canonical form. UserError at the
// user's line for every mistake. Traces may nest; each sees only its own values.
Kernel trace(const std::string& name, TraceOptions options, const std::function<void()>& body,
             Loc loc = Loc::here());
// A template: clang 14 must not try to make a function of `{.fast_math = true}`.
template <std::invocable Body>
Kernel trace(const std::string& name, const Body& body, Loc loc = Loc::here()) {
  return trace(name, TraceOptions{}, std::function<void()>(body), loc);
}

}  // namespace dsl
}  // namespace kiln
