// A kernel through a tier's passes, stage by stage into a dump if one is wanted.
#pragma once

#include <string_view>

#include "ir/kernel.h"
#include "passes/pipeline.h"
#include "runtime/dump.h"

namespace kiln {

// `target` names the GPU; empty for the host. A kernel of the late IR names its own: for a GPU it
// is taken as it is, UserError as require_lowered.
Kernel lowered(const Kernel& kernel, Tier tier, std::string_view target = "", Dump* dump = nullptr);

// Verified, in canonical form, without the passes that KILN_WITHOUT names: what devices compile and
// what keys of caches are made from.
Kernel compilable(const Kernel& kernel);

// Adds the passes that KILN_WITHOUT names, in words or with commas between, to kernel.without.
// UserError as passes_left_out.
void leave_out_passes(Kernel& kernel);

// UserError unless a kernel of the late IR is for `target`, and has the layouts and places that no
// pass will give it.
void require_lowered(const Kernel& kernel, std::string_view target);

}  // namespace kiln
