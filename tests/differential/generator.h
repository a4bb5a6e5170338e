// Random tile programs whose results are exact, so that two devices must agree bit for bit.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/kernel.h"

namespace kiln::differential {

// A program and the sizes to run it with.
struct Program {
  Kernel kernel;
  std::map<std::string, int64_t> dims;
};

// Why results are exact: inputs are small integers; every element-wise store into a float tile is
// clamped to |x| ≤ 4, so a gemm or sum over such tiles stays far below 2^24 whatever its order.
// Tiles that a gemm or a sum accumulates into are f32 and never operands of another.
Program generate(uint64_t seed);

}  // namespace kiln::differential
