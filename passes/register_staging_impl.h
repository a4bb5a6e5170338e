// Copies that cp.async cannot make, fetched ahead all the same: loaded into a fragment, which waits
// in registers, and stored when its elements are there.
#pragma once

#include <cstdint>
#include <string>

#include "ir/kernel.h"
#include "ir/layout/layout.h"
#include "passes/dependence.h"

namespace kiln {

// Of the fragment, of the source's dtype, that a copy from global to shared memory goes through:
// loads of neighbouring vectors by neighbouring lanes, as wide as both sides allow.
Layout staging_layout(const Kernel& kernel, const Op& copy, int64_t warps);

// Registers of a thread that a fragment takes.
int64_t registers_of(DType dtype, const Layout& layout);

// That fetching a copy ahead takes, by a fragment of this layout.
int64_t staging_registers(const Kernel& kernel, const Op& copy, const Layout& layout);

// The registers of a thread that are left for fragments waiting from the top of each of a loop's
// rounds to its end.
class StagingRoom {
 public:
  StagingRoom(const Kernel& kernel, const Op& launch, const Effects& in_loop);

  // Why there are not so many left, in words; empty if there were, and now they are taken.
  std::string take(int64_t registers);

 private:
  int64_t left_ = 0;
};

}  // namespace kiln
