// The GPU tier: a lowered kernel becomes PTX text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/abi.h"
#include "ir/kernel.h"

namespace kiln {

struct GpuLaunch {
  std::string entry;        // the kernel's name in the PTX
  std::vector<Slot> slots;  // its parameters (abi.h), in this order
  int threads;              // a block, all along x
  int shared_bytes;         // dynamic shared memory of a block
  // It waits itself for the end of the launch before it, and so may begin while that one runs.
  bool early = false;
  bool operator==(const GpuLaunch&) const = default;
};

struct GpuCode {
  std::string ptx;
  std::vector<GpuLaunch> launches;
  bool operator==(const GpuCode&) const = default;
};

// `kernel` has been through pipeline_for(Tier::Sm80), and kernel.target names the GPU. The same
// kernel gives the same bytes. InternalError if it holds what the tier cannot emit, or if LLVM
// fails.
GpuCode compile_ptx(const Kernel& kernel);
std::string gpu_llvm_ir(const Kernel& kernel);  // optimised LLVM IR text

}  // namespace kiln
