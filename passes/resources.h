// What a block takes of a multiprocessor, and how many blocks that holds: asked by passes that
// choose warps and stages, by the code generator for what it tells ptxas, and by `kiln explain`.
#pragma once

#include <string>
#include <string_view>

#include "ir/kernel.h"
#include "passes/gpu_target.h"

namespace kiln {

// Registers of a thread (32 bits each) that ptxas is expected to take.
struct RegisterEstimate {
  int64_t needed = 0;  // so that nothing is spilled
  int64_t wanted = 0;  // to load ahead, where they are free; never below `needed`
};
// Of a launch without roles, if it has `warps` warps. Tiles without a layout count as what
// infer_layouts would most likely give them. All there are if the launch is of the late IR.
RegisterEstimate estimate_registers(const Kernel& kernel, const Op& launch, int64_t warps);

// How many blocks of `warps` warps find registers on a multiprocessor.
int64_t blocks_by_registers(int64_t registers, int64_t warps);
// The most registers that a thread may have if so many blocks are to.
int64_t registers_for_blocks(int64_t blocks, int64_t warps);

struct Resources {
  enum class Limit { Threads, Blocks, Shared, Registers };

  int64_t registers = 0;  // of a thread
  int64_t shared = 0;     // bytes of a block
  int64_t warps = 0;      // of a block
  int64_t blocks = 0;     // on a multiprocessor at once; 0 if a block takes more than there is
  Limit limit = Limit::Threads;  // why not more blocks

  int64_t resident_warps() const { return warps * blocks; }
  std::string text() const;  // "2 blocks of 4 warps, by shared memory (82944 bytes each)"
};
// "threads", "the number of blocks", "shared memory" or "registers".
std::string_view name(Resources::Limit limit);

// Of a block that takes what is given, `registers` and all.
Resources block_resources(const GpuTarget& target, int64_t registers, int64_t shared,
                          int64_t warps);
// The same, of which the registers are only estimated: as many blocks as `needed` leaves, and of
// `wanted` what a thread then may have. `blocks` is at least 1 by registers: else ptxas spills.
Resources block_resources(const GpuTarget& target, const RegisterEstimate& registers,
                          int64_t shared, int64_t warps);
// Of a launch without roles, for the kernel's target. needs: infer_layouts.
Resources predict_resources(const Kernel& kernel, OpId launch);

}  // namespace kiln
