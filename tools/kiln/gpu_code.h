// A kernel as a GPU tier makes it, for the subcommands that show it.
#pragma once

#include <string>
#include <vector>

#include "codegen/nvptx.h"
#include "ir/kernel.h"
#include "passes/pipeline.h"

namespace kiln::cli {

// The given one; or, in this order, KILN_CUDA_ARCH's, this GPU's, "sm_90". UserError if there is no
// such architecture.
std::string arch_or_default(const std::string& given);
// The same for one kernel; before the others comes its own, if it is scheduled for one.
std::string arch_for(const Kernel& kernel, const std::string& given);

// Through the passes of the GPU tier for this architecture.
Kernel lowered_for_gpu(Kernel kernel, const std::string& arch, const PassOptions& options = {});

// By the toolkit's tools; UserError if there are none.
std::string sass_of(const GpuCode& code, const std::string& arch);

}  // namespace kiln::cli
