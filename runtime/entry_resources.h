// What a GPU's compiler makes of PTX: registers and local memory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "codegen/nvptx.h"
#include "ir/kernel.h"

namespace kiln {

struct EntryResources {
  int registers = 0, local_bytes = 0;  // a thread
  std::string from;                    // who says so: "ptxas V13.0.88"
};
// Of each entry of the code, in order: by a ptxas, else by the driver of this GPU; empty if neither
// is here, or if the GPU cannot run it. `kernel` is what the code was made from, before any pass.
std::vector<EntryResources> entry_resources(const Kernel& kernel, const GpuCode& code,
                                            std::string_view arch);

}  // namespace kiln
