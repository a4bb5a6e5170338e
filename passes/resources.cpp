#include "passes/resources.h"

#include <fmt/format.h>

#include <algorithm>

#include "passes/memory_plan_impl.h"

namespace kiln {
namespace {

constexpr int64_t kLanes = 32;
constexpr int64_t kRegisterUnit = 8;  // of a thread: 256 of a warp
// A multiprocessor has four parts, each with a fourth of its registers; a warp is in one of them.
constexpr int64_t kParts = 4;

int64_t rounded(int64_t registers) {
  return std::max((registers + kRegisterUnit - 1) / kRegisterUnit, int64_t{1}) * kRegisterUnit;
}

}  // namespace

int64_t blocks_by_registers(int64_t registers, int64_t warps) {
  const int64_t of_part = GpuTarget::kRegistersPerMultiprocessor / kParts;
  return of_part / (kLanes * rounded(registers)) * kParts / warps;
}

int64_t registers_for_blocks(int64_t blocks, int64_t warps) {
  const int64_t of_part = GpuTarget::kRegistersPerMultiprocessor / kParts;
  const int64_t warps_of_part = (blocks * warps + kParts - 1) / kParts;
  const int64_t registers = of_part / (kLanes * std::max<int64_t>(warps_of_part, 1));
  return std::min<int64_t>(GpuTarget::kMostRegisters, registers / kRegisterUnit * kRegisterUnit);
}

std::string_view name(Resources::Limit limit) {
  switch (limit) {
    case Resources::Limit::Threads: return "threads";
    case Resources::Limit::Blocks: return "the number of blocks";
    case Resources::Limit::Shared: return "shared memory";
    case Resources::Limit::Registers: return "registers";
  }
  return "";
}

std::string Resources::text() const {
  std::string by(name(limit));
  if (limit == Limit::Shared) by += fmt::format(" ({} bytes each)", shared);
  if (limit == Limit::Registers) by += fmt::format(" ({} a thread)", registers);
  return fmt::format("{} block{} of {} warp{}, by {}", blocks, blocks == 1 ? "" : "s", warps,
                     warps == 1 ? "" : "s", by);
}

Resources block_resources(const GpuTarget& target, int64_t registers, int64_t shared,
                          int64_t warps) {
  using enum Resources::Limit;
  Resources found{registers, shared, warps, target.threads_per_multiprocessor / (kLanes * warps),
                  Threads};
  const auto at_most = [&](int64_t blocks, Resources::Limit limit) {
    if (blocks >= found.blocks) return;
    found.blocks = blocks;
    found.limit = limit;
  };
  at_most(target.blocks_per_multiprocessor, Blocks);
  at_most(target.shared_per_multiprocessor / (shared + GpuTarget::kSharedPerBlockReserved), Shared);
  at_most(blocks_by_registers(registers, warps), Registers);
  return found;
}

Resources block_resources(const GpuTarget& target, const RegisterEstimate& registers,
                          int64_t shared, int64_t warps) {
  const int64_t least = std::min(registers.needed, registers_for_blocks(1, warps));
  Resources found = block_resources(target, least, shared, warps);
  const int64_t most = registers_for_blocks(std::max<int64_t>(found.blocks, 1), warps);
  found.registers = std::min(std::max(registers.wanted, registers.needed), most);
  return found;
}

Resources predict_resources(const Kernel& kernel, OpId launch) {
  const Op& op = kernel.op(launch);
  const int64_t warps = op.integer("warps");
  return block_resources(gpu_target(kernel.target), estimate_registers(kernel, op, warps),
                         shared_plan(kernel, launch).bytes, warps);
}

}  // namespace kiln
