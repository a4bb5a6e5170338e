// Lowers kernels for GPUs, and asks ptxas, where there is one, what it makes of their PTX.
#pragma once

#include <string>

#include "codegen/nvptx.h"
#include "ir/kernel.h"

namespace kiln::testing {

// Through the pipeline of the GPU tier, verified after every pass.
Kernel lowered(Kernel kernel, const std::string& target);
GpuCode compile_for(const Kernel& kernel, const std::string& target);

size_t occurrences(const std::string& text, const std::string& part);

// Assembles for the target; an error, a spill, local memory or an advisory, empty if there is none
// of these, or no ptxas (said once).
std::string assembly_fault(const std::string& ptx, const std::string& target);

}  // namespace kiln::testing
