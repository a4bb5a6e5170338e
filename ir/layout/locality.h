// Does each thread of a parallel loop have, in its own registers, the elements that its points use?
#pragma once

#include <optional>
#include <vector>

#include "ir/layout/layout.h"

namespace kiln {

// A loop over a box, spread over threads as `loop` says, reaches a fragment at the coordinate
// whose axis k is axis axes[k] of the point, or 0 if axes[k] is kNoAxis. For each register of
// `loop`, the register of `fragment` in the same thread that holds that element; -1 if no thread's
// point there is inside both the loop's box and the fragment's. Nothing if some thread lacks one of
// its elements, or if the registers differ between threads.
std::optional<std::vector<int>> local_registers(const Layout& loop, const std::vector<int>& axes,
                                                const Layout& fragment);

}  // namespace kiln
