// What compiled code is told at launch, the same for every backend and stable across processes:
// slots name the kernel's interface, not values of one lowered kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

// One 64-bit launch argument: a tensor's address or one stride (elements), a dim (sign-extended) or
// a param (its bits, zero-extended). Scalars computed at top level are computed again in the code.
struct Slot {
  enum class Kind : uint8_t { Pointer, Stride, Dim, Param };
  Kind kind;
  std::string name;
  int axis = 0;  // of a Stride
  bool operator==(const Slot&) const = default;
};

// The slots of one launch of a kernel: what its region (and the top-level scalars that it uses)
// needs, in the order of the interface; of each tensor the pointer, then all strides but the last.
std::vector<Slot> slots_of(const Kernel& kernel, const Op& launch);

}  // namespace kiln
