// A GPU without a GPU: the PTX that a GPU would run, in the emulator (runtime/ptx), which finds
// what a GPU would do silently wrong. A finding is a DeviceError with all of them in its text.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "codegen/nvptx.h"
#include "runtime/device.h"
#include "runtime/ptx/ptx.h"

namespace kiln {

// `target` is a name of passes/gpu_target.h; empty: sm_80. Tensors are host memory. The variable
// KILN_EMULATOR_ASYNC says when asynchronous copies and products take place: "issue" (default),
// "latest" or "random".
Device& emulator_device(std::string_view target = {});

// What the device runs with: KILN_EMULATOR_ASYNC, the host's threads.
ptx::Options emulator_options();

// An executable of this code in place of what compile_for_gpu makes of the kernel.
std::unique_ptr<Executable> emulated(const Kernel& kernel, GpuCode code);

// Runs what was compiled for an emulator, with these options; findings are in the report. UserError
// if it was compiled for another device. One report for each launch of the kernel.
std::vector<ptx::Report> emulate(const Executable& executable, const Bindings& bindings,
                                 const ptx::Options& options);

}  // namespace kiln
