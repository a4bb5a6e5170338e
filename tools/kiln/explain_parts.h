// Sections of `kiln explain` that have a file of their own.
#pragma once

#include "ir/kernel.h"
#include "tools/kiln/common.h"

namespace kiln::cli {

// Runs a block of a small problem in the emulator and prints what its lines did to shared and
// global memory. Of a .tile file with extents that are not known it says why it cannot.
void print_conflicts(const std::string& target, const NamedTexts& settings, const Kernel& kernel,
                     const std::string& arch);

}  // namespace kiln::cli
