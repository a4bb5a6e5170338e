// How often this thread has asked for memory: the only way to see that a path allocates nothing.
#pragma once

#include <cstdint>

namespace kiln::test {

int64_t allocations();  // by `new` in this thread, so far

}  // namespace kiln::test
