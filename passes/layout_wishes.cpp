// A wish is declined where the tile's elements would be in no thread or place of this launch, where
// it would cost what the wish cannot be worth, or where the chosen instructions need another
// layout. Everything else is a matter of speed, and the kernel's to decide.
#include <fmt/format.h>

#include <algorithm>

#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "passes/infer_layouts_impl.h"
#include "passes/memory_plan_impl.h"

namespace kiln::layouts {
namespace {

constexpr int64_t kChunk = 16;  // bytes that one cp.async moves, to a multiple of them

int bytes_of(const Type& type) {
  return static_cast<int>(size_of(type.dtype));
}

std::string why_not_fragment(const Tiles& tiles, const Type& type, const Layout& wish) {
  if (wish.warps() != tiles.warps)
    return fmt::format("it is for {} warps, the launch has {}", wish.warps(), tiles.warps);
  if (type.shape.empty())
    return wish == replicated({}, tiles.warps) ? "" : "a scalar is in every thread";
  const int64_t most = GpuTarget::kMostRegisters * 4 / bytes_of(type);
  if (wish.registers() > most &&
      wish.registers() > blocked(type.shape, tiles.warps, bytes_of(type)).registers())
    return fmt::format("a thread would have {} elements, its registers hold {}", wish.registers(),
                       most);
  return "";
}

// Of the tile's rows, where cp.async copies to it.
std::string why_not_shared(const Kernel& kernel, const Op& alloc, const Layout& wish,
                           RegionId body) {
  const Type& type = kernel.type(alloc.result);
  std::string why;
  walk(kernel, body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Copy || op.word("instruction") != "cp_async" ||
        base_of(kernel, op.operands[1]) != alloc.result)
      return;
    if (vector_width(wish, wish.rank() - 1) * bytes_of(type) % kChunk != 0)
      why = fmt::format(
          "the cp.async copy of line {} moves {} bytes of a row at a time, which it "
          "does not keep together at a multiple of {}",
          op.loc.line, kChunk, kChunk);
  });
  return why;
}

}  // namespace

std::string why_not_wished(const Tiles& tiles, const Op& alloc, const Layout& wish, RegionId body) {
  const Type& type = tiles.kernel.type(alloc.result);
  return tiles.is_fragment(alloc.result) ? why_not_fragment(tiles, type, wish)
                                         : why_not_shared(tiles.kernel, alloc, wish, body);
}

void decline(Op& alloc, const std::string& reason) {
  alloc.attrs.set("reason", "another layout than asked for: " + reason);
}

void fit_wishes(Tiles& tiles, OpId launch) {
  Kernel& kernel = tiles.kernel;
  if (tiles.wished.empty()) return;
  const GpuTarget& target = gpu_target(kernel.target);
  const int64_t bytes = shared_plan(kernel, launch).bytes;
  if (bytes <= target.shared_per_block) return;
  for (OpId id : tiles.wished) {
    const Type& type = kernel.type(kernel.op(id).result);
    const Layout own = shared_tile(type.shape, bytes_of(type));
    if (own.extent(Resource::Offset) >= tiles.at(kernel.op(id).result)->extent(Resource::Offset))
      continue;
    tiles.give(kernel.op(id).result, own);
    decline(kernel.op(id), fmt::format("the block would need {} bytes of shared memory, {} has {}",
                                       bytes, target.name, target.shared_per_block));
  }
}

}  // namespace kiln::layouts
