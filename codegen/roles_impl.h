// The roles of a launch, and how they share a multiprocessor. No LLVM here.
#pragma once

#include <vector>

#include "ir/kernel.h"
#include "passes/gpu_target.h"

namespace kiln {

struct Role {
  RegionId region;
  int64_t first_warp = 0;  // of the block; a multiple of four
  int64_t warps = 0;
  int64_t registers = 0;    // of a thread
  bool one_thread = false;  // all others of the role are idle
  // Warps, idle ones included.
  int64_t warps_held() const { return (warps + 3) / 4 * 4; }
};
std::vector<Role> roles_of(const Kernel& kernel, const Op& roles);

// The op `roles` that ends a launch; null if it has none.
const Op* roles_op(const Kernel& kernel, const Op& launch);

// ptxas takes an instruction of wgmma only if a thread starts with registers for its accumulators
// and these: up to 30 are needed.
inline constexpr int64_t kRegistersBesideAccumulators = 32;

// What a launch with roles starts with, before its warpgroups exchange registers.
struct LaunchRegisters {
  int64_t blocks = 1;     // of a multiprocessor: as many as the roles' registers allow
  int64_t registers = 0;  // of a thread, as ptxas allocates them
};
// UserError if the roles' registers or warps are not what the launch can have.
LaunchRegisters launch_registers(const Kernel& kernel, const Op& launch, const GpuTarget& target);

}  // namespace kiln
