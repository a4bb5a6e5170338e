#include <fmt/format.h>

#include <algorithm>

#include "codegen/roles_impl.h"
#include "ir/error.h"
#include "ir/walk.h"

namespace kiln {
namespace {

constexpr int64_t kGroup = 128;         // threads that exchange registers together
constexpr int64_t kMostAtLaunch = 256;  // registers of a thread, rounded to their unit
constexpr int64_t kUnit = 8;

// Does the region do what takes the threads of a warp? Each of them holds a part of a tile then.
bool needs_threads(const Kernel& kernel, RegionId region) {
  bool found = false;
  walk(kernel, region, [&](OpId id) {
    const Op& op = kernel.op(id);
    const Type* tile = op.code == OpCode::Alloc ? &kernel.type(op.result) : nullptr;
    if (tile && tile->space == Space::Fragment && tile->rank() > 0) found = true;
    if (op.code == OpCode::Copy || op.code == OpCode::Parallel || op.code == OpCode::Gemm)
      found = true;
    if (op.code == OpCode::Fill && kernel.type(op.operands[1]).rank() > 0) found = true;
  });
  return found;
}

// Those that ptxas wants for the widest product: 64 rows of 256 columns at most, of 128 threads.
int64_t registers_of_products(const Kernel& kernel, RegionId region) {
  int64_t most = 0;
  walk(kernel, region, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::GemmAsync) return;
    const int64_t columns = std::min<int64_t>(kernel.type(op.operands[2]).shape.back(), 256);
    most = std::max(most, columns / 2 + kRegistersBesideAccumulators);
  });
  return most;
}

}  // namespace

std::vector<Role> roles_of(const Kernel& kernel, const Op& roles) {
  std::vector<Role> all;
  int64_t first = 0;
  for (size_t i = 0; i < roles.regions.size(); ++i) {
    Role role;
    role.region = roles.regions[i];
    role.first_warp = first;
    role.warps = roles.ints("warps").at(i);
    role.registers = roles.ints("registers").at(i);
    role.one_thread = role.warps == 1 && !needs_threads(kernel, role.region);
    first += role.warps_held();
    all.push_back(role);
  }
  return all;
}

const Op* roles_op(const Kernel& kernel, const Op& launch) {
  for (OpId id : kernel.region(launch.regions[0]).ops)
    if (kernel.op(id).code == OpCode::Roles) return &kernel.op(id);
  return nullptr;
}

LaunchRegisters launch_registers(const Kernel& kernel, const Op& launch, const GpuTarget& target) {
  const Op& op = *roles_op(kernel, launch);
  int64_t warps = 0, registers = 0;
  for (const Role& role : roles_of(kernel, op)) {
    warps += role.warps_held();
    registers += 32 * role.warps_held() * role.registers;
  }
  const int64_t threads = 32 * warps;
  if (launch.integer("warps") != warps)
    throw UserError(launch.loc, fmt::format("launch: warps: expected {}, whole groups of four for "
                                            "each role, got {}",
                                            warps, launch.integer("warps")));
  const auto of_thread = [&](int64_t blocks) {
    const int64_t fair = GpuTarget::kRegistersPerMultiprocessor / (blocks * threads);
    return std::min(fair / kUnit * kUnit, kMostAtLaunch);
  };
  const int64_t shared = launch.integer("shared") + GpuTarget::kSharedPerBlockReserved;
  int64_t blocks = std::min({target.shared_per_multiprocessor / shared,
                             target.threads_per_multiprocessor / threads,
                             static_cast<int64_t>(target.blocks_per_multiprocessor)});
  const int64_t products = registers_of_products(kernel, launch.regions[0]);
  while (blocks > 1 && (threads * of_thread(blocks) < registers || of_thread(blocks) < products))
    --blocks;
  blocks = std::max<int64_t>(blocks, 1);
  if (threads * of_thread(blocks) < registers)
    throw UserError(op.loc,
                    fmt::format("roles: registers: {} a thread for all warpgroups together; "
                                "expected at most {}, what {} threads start with",
                                registers / kGroup, threads * of_thread(blocks) / kGroup, threads));
  return {blocks, of_thread(blocks)};
}

}  // namespace kiln
