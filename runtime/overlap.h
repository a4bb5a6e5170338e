// Do two tensors share memory?
#pragma once

#include "ir/memory.h"

namespace kiln {

// The bytes from the first to past the last element; both ends 0 for an empty tensor. Strides that
// leave the address space give `fits` false.
struct Extent {
  intptr_t begin = 0, end = 0;
  bool fits = true;
};
Extent byte_extent(const Memory& memory);

// False if no byte can be in both: their ranges are disjoint, or they are interleaved parts
// (columns, heads) of one array. True otherwise: exact for all but exotic strides.
bool may_overlap(const Memory& a, const Memory& b);

}  // namespace kiln
