#include "passes/register_staging_impl.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"

namespace kiln {
namespace {

constexpr int64_t kVector = 16;  // bytes of the widest access
constexpr int64_t kWord = 4;     // bytes of a register
// For addresses, conditions, scalars, and what gemms read from shared memory.
constexpr int64_t kOthers = 64;

}  // namespace

// The wider of the two dtypes decides how many elements a vector has: those of the other side are
// narrower then, but neighbours still.
Layout staging_layout(const Kernel& kernel, const Op& copy, int64_t warps) {
  const Type &from = kernel.type(copy.operands[0]), &to = kernel.type(copy.operands[1]);
  const auto widest = static_cast<int>(std::max(size_of(from.dtype), size_of(to.dtype)));
  const int last = to.rank() - 1;
  const Layout layout = blocked(to.shape, warps, widest);
  const int64_t wanted = vector_width(layout, last);
  const auto stored = tile_layout(kernel, copy.operands[1]);
  const int64_t together = stored ? vector_width(*stored, last) : 1;
  if (together >= wanted) return layout;
  return blocked(to.shape, warps, static_cast<int>(kVector / together));
}

int64_t registers_of(DType dtype, const Layout& layout) {
  return (layout.registers() * static_cast<int64_t>(size_of(dtype)) + kWord - 1) / kWord;
}

// Each element that is converted has a register of its own meanwhile.
int64_t staging_registers(const Kernel& kernel, const Op& copy, const Layout& layout) {
  const DType from = kernel.type(copy.operands[0]).dtype, to = kernel.type(copy.operands[1]).dtype;
  const int64_t waiting = registers_of(from, layout);
  return from == to ? waiting : std::max(waiting, layout.registers());
}

StagingRoom::StagingRoom(const Kernel& kernel, const Op& launch, const Effects& in_loop) {
  const int64_t threads = 32 * std::max<int64_t>(1, launch.integer("warps"));
  left_ = std::min<int64_t>(GpuTarget::kMostRegisters,
                            GpuTarget::kRegistersPerMultiprocessor / threads) -
          kOthers;
  walk(kernel, launch.regions[0], [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Alloc || !in_loop.touches(op.result)) return;
    const Type& type = kernel.type(op.result);
    const auto layout = layout_of(op);
    if (type.space == Space::Fragment && layout) left_ -= registers_of(type.dtype, *layout);
  });
}

std::string StagingRoom::take(int64_t registers) {
  if (registers > left_)
    return fmt::format("it would take {} registers of a thread, which has {} left", registers,
                       std::max<int64_t>(0, left_));
  left_ -= registers;
  return "";
}

}  // namespace kiln
