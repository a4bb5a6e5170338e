// A kernel as a GPU tier makes it, for the subcommands that show it.
#pragma once

#include <string>
#include <vector>

#include "codegen/nvptx.h"
#include "ir/kernel.h"
#include "passes/pipeline.h"

namespace kiln::cli {

// "sm_90" if empty and there is no GPU, else the GPU's.
std::string arch_or_default(const std::string& given);

// Through the passes of the GPU tier for this architecture.
Kernel lowered_for_gpu(Kernel kernel, const std::string& arch, const PassOptions& options = {});

// What the assembler and disassembler of a CUDA toolkit make of PTX. UserError if there is none.
struct Resources {
  int registers = 0, local_bytes = 0;
  std::string from;  // who says so: "ptxas V13.0.88"
};
// Of each entry, in order; empty if there is no ptxas.
std::vector<Resources> resources_of(const GpuCode& code, const std::string& arch);
std::string sass_of(const GpuCode& code, const std::string& arch);

}  // namespace kiln::cli
