// From a kernel to something that runs: compiled once a process, however many ask.
#pragma once

#include <cstddef>

#include "runtime/function.h"
#include "runtime/stats.h"

namespace kiln {

// Verifies the kernel, brings it into canonical form and compiles it, unless this process has its
// code for the device's target already. Threads that ask for one kernel at once compile it once.
Function compile(Device& device, const Kernel& kernel);

// So many kernels are remembered, those used last. Handles keep what they run, remembered or not.
constexpr size_t kMostCompiled = 1024;
// Forgets what this process has compiled. Handles that were given out stay good.
void forget_compiled();

// All in one: compile, bind, run.
void run(Device& device, const Kernel& kernel, const Arguments& arguments);

}  // namespace kiln
