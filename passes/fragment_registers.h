// How many registers the fragments of a loop's rounds take.
#pragma once

#include <vector>

#include "ir/kernel.h"

namespace kiln {

// An op of a round as it will be; `ahead` if it works for the next one.
struct RoundStep {
  OpId op;
  bool ahead = false;
};

// About as many as a thread needs for a round. Of tiles `twice` there is another one for the next
// round.
int64_t registers_of_round(const Kernel& kernel, OpId launch, OpId loop,
                           const std::vector<RoundStep>& steps, const std::vector<Value>& twice);

// Blocks of the launch on a multiprocessor, by registers, threads and shared memory.
int64_t blocks_at_once(const Kernel& kernel, OpId launch, int64_t registers);

}  // namespace kiln
