// How many warps a block gets.
#pragma once

#include <string>

#include "ir/kernel.h"

namespace kiln {

// A launch's number of warps, 1 to 16, from the gemms, tiles and loops in it; launch_warps.cpp says
// how.
int64_t launch_warps(const Kernel& kernel, const Op& launch);
// Why so many, in words; of a launch that choose_instructions has not seen.
std::string launch_warps_reason(const Kernel& kernel, const Op& launch);

}  // namespace kiln
