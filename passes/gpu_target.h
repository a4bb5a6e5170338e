// The GPUs that code is generated for, and what the passes and the code generator must know of
// them.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kiln {

struct GpuTarget {
  std::string_view name;  // "sm_90a": of Kernel::target and of PTX's .target
  int capability;         // 90
  int ptx;                // 78 for .version 7.8: the lowest that knows the target
  int shared_per_block;   // bytes, opted in to (CUDA C++ Programming Guide, "Technical
                          // Specifications")
  int shared_per_multiprocessor;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;

  bool has_fp8_mma() const { return capability >= 89; }
  bool has_early_launches() const { return capability >= 90; }  // griddepcontrol
  static constexpr int kRegistersPerMultiprocessor = 65536;
  static constexpr int kMostRegisters = 255;  // a thread
  static constexpr int kSharedPerBlockReserved =
      1024;  // bytes that the system takes of each block's share
};

std::span<const GpuTarget> gpu_targets();
// UserError listing the names if there is none; "sm_70" and older are named as too old.
const GpuTarget& gpu_target(std::string_view name);
// The best target for a device of this capability: 90 gives sm_90 (not sm_90a, until something
// needs it), 103 gives sm_100, 75 is a UserError.
const GpuTarget& gpu_target_for(int capability);

}  // namespace kiln
