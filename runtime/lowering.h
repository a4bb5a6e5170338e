// A kernel through a tier's passes, stage by stage into a dump if one is wanted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "passes/pipeline.h"
#include "runtime/dump.h"

namespace kiln {

// `target` names the GPU; empty for the host. A kernel of the late IR names its own: for a GPU it
// is taken as it is, UserError as require_lowered.
Kernel lowered(const Kernel& kernel, Tier tier, std::string_view target = "", Dump* dump = nullptr,
               PassOptions options = {});

// As it is after the last run of that pass, '-' standing for '_'. UserError listing the tier's
// passes if it is none, or saying why it does not run on this kernel.
Kernel after_pass(const Kernel& kernel, Tier tier, std::string_view target, std::string_view pass);
// A tier's passes in order, those that run again once.
std::vector<std::string> pass_names(Tier tier);

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
