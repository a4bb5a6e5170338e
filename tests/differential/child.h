// Checks in a process of their own, and what they write to standard error.
#pragma once

#include <functional>
#include <string>

namespace kiln::differential {

// What `check` gives, run in a child process, so that a crash of compiled code is a finding too, as
// is one that takes longer than so many seconds.
std::string guarded(const std::function<std::string()>& check, unsigned seconds);

// What `run` writes to standard error, which nobody else sees; its exceptions pass.
std::string written_by(const std::function<void()>& run);

}  // namespace kiln::differential
