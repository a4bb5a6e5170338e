// What a round of a pipelined loop does, in its order, and what is under way meanwhile.
#pragma once

#include <string>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

struct TimelineRow {
  std::string what;   // "fetch k(i+1), v(i+1)": tiles by the tensors that they are copied from
  int64_t bytes = 0;  // begun, and not waited for, after it
};
struct Timeline {
  std::vector<std::string> rings;   // "k: 2 slots of f16[64, 128], 16 KiB each"
  std::vector<TimelineRow> before;  // the first round; what it has of the loop's tiles
  std::vector<TimelineRow> round;   // round i, of those in the middle
  int64_t most_bytes = 0;           // under way at once
};
// Of a loop in a launch, with channels or without.
Timeline timeline(const Kernel& kernel, OpId launch, OpId loop);

// The pipelined loops of a launch, in program order.
std::vector<OpId> pipelined_loops(const Kernel& kernel, OpId launch);

}  // namespace kiln
