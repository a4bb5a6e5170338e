#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ir/error.h"
#include "passes/gpu_target.h"
#include "passes/memory_plan_impl.h"
#include "passes/passes.h"

namespace kiln {
namespace {

// The tiles alive when most bytes are, the largest first.
std::vector<SharedTile> worst_moment(const SharedPlan& plan) {
  std::vector<SharedTile> worst;
  int64_t most = 0;
  for (const SharedTile& tile : plan.tiles) {
    std::vector<SharedTile> alive;
    int64_t bytes = 0;
    for (const SharedTile& other : plan.tiles) {
      if (other.first > tile.first || other.last < tile.first) continue;
      alive.push_back(other);
      bytes += other.bytes;
    }
    if (bytes > most) most = bytes, worst = std::move(alive);
  }
  std::stable_sort(worst.begin(), worst.end(),
                   [](const SharedTile& a, const SharedTile& b) { return a.bytes > b.bytes; });
  return worst;
}

[[noreturn]] void refuse(const Kernel& kernel, const SharedPlan& plan, const GpuTarget& target) {
  const std::vector<SharedTile> alive = worst_moment(plan);
  std::vector<std::string> tiles;
  int64_t bytes = 0;
  for (const SharedTile& tile : alive) {
    const Op& alloc = kernel.op(tile.alloc);
    tiles.push_back(fmt::format("{} of {} takes {}", str(kernel.type(alloc.result)), str(alloc.loc),
                                tile.bytes));
    bytes += tile.bytes;
  }
  const std::string gaps =
      plan.bytes > bytes ? fmt::format(", and {} lie between tiles", plan.bytes - bytes) : "";
  throw UserError(kernel.op(alive.front().alloc).loc,
                  fmt::format("shared memory: a block needs {} bytes, {} has {}: {}{}", plan.bytes,
                              target.name, target.shared_per_block, fmt::join(tiles, ", "), gaps),
                  "smaller tiles or fewer stages");
}

}  // namespace

void plan_shared_memory(Kernel& kernel) {
  const GpuTarget& target = gpu_target(kernel.target);
  for (OpId id : kernel.region(kernel.body).ops) {
    if (kernel.op(id).code != OpCode::Launch) continue;
    const SharedPlan plan = shared_plan(kernel, id);
    if (plan.bytes > target.shared_per_block) refuse(kernel, plan, target);
    for (const SharedTile& tile : plan.tiles)
      kernel.op(tile.alloc).attrs.set("offset", tile.offset);
    kernel.op(id).attrs.erase("shared");  // its default, 0, is not kept as an attribute
    if (plan.bytes > 0) kernel.op(id).attrs.set("shared", plan.bytes);
  }
}

}  // namespace kiln
