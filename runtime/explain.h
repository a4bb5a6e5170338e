// What the compiler chose for a GPU, and why, as text for people.
#pragma once

#include <string>
#include <string_view>

#include "ir/kernel.h"
#include "ir/loc.h"
#include "runtime/entry_resources.h"

namespace kiln {

// Of each launch: grid, block, registers, occupancy; its ops in order with instructions and
// reasons; what bounds its hottest loop; its pipelined rounds. UserError as lowered().
std::string explain(const Kernel& kernel, std::string_view arch);

// The rounds of the pipelined loops of a launch, by number. `scheduled` is the kernel before its
// channels became shared tiles, `lowered` after all passes.
std::string explain_pipelines(Kernel scheduled, const Kernel& lowered, size_t launch);

// "32 KiB".
std::string byte_text(double bytes);
// "file:line", the file from the current directory where that is shorter; empty if not known.
std::string place(const Loc& loc);

}  // namespace kiln
