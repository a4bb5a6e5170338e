// Random tile programs whose results are exact, so that two devices must agree bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/kernel.h"

namespace kiln::differential {

// A program, and what to run it with.
struct Program {
  Kernel kernel;
  std::map<std::string, int64_t> dims;
  bool any_bits = false;  // inputs are any numbers, not small integers
};

// Why results are exact. Most programs: inputs are small integers; what is stored into a float tile
// element by element is clamped to |x| ≤ 4, and only such tiles are operands of a float gemm or
// sum, whose result stays far below 2^24 whatever the order; floats that were integers or sums are
// never operands (`Range`). The others take any numbers, infinities and NaNs too: no sums of
// floats, and no fast_math, so that every op is correctly rounded. Functions that devices
// approximate, and softmaxes, have few arguments and coarse results (generate/approximate.h).
// Loops in unspecified order only add integers, or to sums; atomics that meet commute. Bits are
// looked at only of numbers that no op has made, whose zeros and NaNs are one.
Program generate(uint64_t seed);

void drop_watches(Kernel& kernel);  // for tests that want no words of it

}  // namespace kiln::differential
