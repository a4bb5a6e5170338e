// Checks in a process of their own.
#pragma once

#include <functional>
#include <string>

namespace kiln::differential {

// What `check` gives, run in a child process, so that a crash of compiled code is a finding too, as
// is one that takes longer than so many seconds.
std::string guarded(const std::function<std::string()>& check, unsigned seconds);

}  // namespace kiln::differential
