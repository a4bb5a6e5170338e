// A kernel through a tier's passes, stage by stage into a dump if one is wanted.
#pragma once

#include <string_view>

#include "ir/kernel.h"
#include "passes/pipeline.h"
#include "runtime/dump.h"

namespace kiln {

// `target` names the GPU; empty for the host.
Kernel lowered(const Kernel& kernel, Tier tier, std::string_view target = "", Dump* dump = nullptr);

}  // namespace kiln
