// All that is checked of programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/device.h"
#include "tests/differential/case.h"

namespace kiln::differential {

struct Target {
  std::string name;
  Device* device = nullptr;
};

// What programs run on.
struct Targets {
  std::vector<Target> here, gpus;  // those with this process's memory, and the others
  bool one_at_a_time = false;      // on a GPU: for tools that cannot follow several threads
};
// Names of devices, and `emulator-latest`: with asynchronous copies as late as they may be.
Targets targets_named(const std::vector<std::string>& names);

// What is wrong with some programs; empty if nothing. On devices with this process's memory, in one
// child process, because a new one is slow at first.
std::string check(std::span<const Case> cases, const Targets& targets);
inline std::string check(const Case& c, const Targets& targets) {
  return check(std::span(&c, 1), targets);
}

// Likewise, of a program that was made smaller: empty too if its result is not one thing, or the
// interpreter refuses it.
std::string check_reduced(const Case& c, const Targets& targets);

// The first pass after which the interpreter gives another result; for the report.
std::string guilty_pass(const Case& c);

}  // namespace kiln::differential
