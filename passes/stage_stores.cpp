// copy fragment → tensor   becomes   copy fragment → tile; copy tile → tensor
//
// with a shared tile of the tensor's dtype, where a thread has less than 16 bytes of a row: its
// registers are then stored in pieces, of which a warp has eight rows at a time. Out of shared
// memory neighbouring threads take neighbouring vectors. The tile lies where others have lain whose
// time is over (the stages of a loop before it), or else takes only what costs no block of a
// multiprocessor.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "ir/builder.h"
#include "ir/error.h"
#include "ir/layout/access.h"
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "passes/memory_plan_impl.h"
#include "passes/passes.h"
#include "passes/reason.h"

namespace kiln {
namespace {

constexpr int64_t kVector = 16;  // bytes
constexpr int64_t kLanes = 32;
constexpr int64_t kOtherRegisters = 24;  // a thread has besides what it stores, at the least

// A copy from registers to a tensor.
struct StoreCopy {
  RegionId region;
  OpId id;
  bool in_pipeline = false;
};

class StageStores {
 public:
  StageStores(Kernel& kernel, OpId launch)
      : kernel_(kernel), launch_(launch), target_(gpu_target(kernel.target)) {}

  void run() {
    survey(kernel_.op(launch_).regions[0], false);
    for (const StoreCopy& copy : copies_) {
      if (is_wide(copy.id)) continue;
      std::string why = why_not(copy);
      if (why.empty()) why = try_stage(copy);
      if (!why.empty()) add_reason(kernel_.op(copy.id), "not through shared memory: " + why);
    }
  }

 private:
  void survey(RegionId region, bool in_pipeline) {
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Copy && is_store(op)) copies_.push_back({region, id, in_pipeline});
      const bool pipeline = op.code == OpCode::For && op.word("kind") == "pipelined";
      for (RegionId inner : op.regions) survey(inner, in_pipeline || pipeline);
    }
  }
  bool is_store(const Op& copy) const {
    return kernel_.type(copy.operands[1]).space == Space::Global &&
           kernel_.type(copy.operands[0]).space == Space::Fragment &&
           kernel_.def_as(copy.operands[0], OpCode::Alloc);
  }

  const Op& op(OpId id) const { return kernel_.op(id); }
  Layout source_layout(OpId id) const {
    const Op& alloc = *kernel_.def_as(op(id).operands[0], OpCode::Alloc);
    const auto layout = layout_of(alloc);
    if (!layout) throw UserError(alloc.loc, "the tile has no layout", "run infer_layouts first");
    return *layout;
  }
  const Shape& shape(OpId id) const { return kernel_.type(op(id).operands[0]).shape; }
  int bytes_of(OpId id) const {
    return static_cast<int>(size_of(kernel_.type(op(id).operands[1]).dtype));
  }
  int64_t warps() const { return op(launch_).integer("warps"); }

  // Of the tensor's last axis, as far as it is the fragment's: bytes that a thread has together.
  int64_t together(OpId id) const {
    if (shape(id).empty()) return kVector;
    return vector_width(source_layout(id), static_cast<int>(shape(id).size()) - 1) * bytes_of(id);
  }
  bool is_wide(OpId id) const { return together(id) >= kVector; }

  std::string why_not(const StoreCopy& copy) const {
    const int64_t bytes = bytes_of(copy.id), row = shape(copy.id).back() * bytes;
    const Shape& stored = kernel_.type(op(copy.id).operands[1]).shape;
    if (stored.back() != shape(copy.id).back())
      return "the last axes of fragment and tensor are not the same";
    if (row % kVector != 0)
      return fmt::format("rows of {} bytes are not chunks of {}", row, kVector);
    const int64_t threads = warps() * kLanes, all = count(shape(copy.id)) * bytes;
    if (all < threads * kVector)
      return fmt::format("{} bytes are less than {} for each of {} threads", all, kVector, threads);
    if (copy.in_pipeline) return "it would hold up the rounds of a pipelined loop";
    return "";
  }

  // The most blocks that a multiprocessor has room for beside each other, with what is known here.
  int64_t blocks(int64_t shared, int64_t registers) const {
    const int64_t threads = warps() * kLanes;
    return std::min(
        {target_.shared_per_multiprocessor / (shared + GpuTarget::kSharedPerBlockReserved),
         GpuTarget::kRegistersPerMultiprocessor / (threads * (registers + kOtherRegisters)),
         target_.threads_per_multiprocessor / threads, int64_t{target_.blocks_per_multiprocessor}});
  }

  std::string try_stage(const StoreCopy& copy) {
    const Type& type = kernel_.type(op(copy.id).operands[0]);
    const int64_t registers =
        source_layout(copy.id).registers() * static_cast<int64_t>(size_of(type.dtype)) / 4;
    const int64_t before = shared_plan(kernel_, launch_).bytes, can = blocks(before, registers);
    std::string why;
    for (const Layout& layout : tile_layouts(copy.id)) {
      Kernel attempt = kernel_;
      stage(attempt, copy, layout);
      const int64_t after = shared_plan(attempt, launch_).bytes, could = blocks(after, registers);
      if (after > target_.shared_per_block) {
        why = fmt::format("the block would need {} bytes, {} has {}", after, target_.name,
                          target_.shared_per_block);
      } else if (could < can) {
        why = fmt::format("of blocks with {} bytes, not {}, a multiprocessor has {}, not {}", after,
                          before, could, can);
      } else {
        kernel_ = std::move(attempt);
        return "";
      }
    }
    return why;
  }

  void stage(Kernel& kernel, const StoreCopy& copy, const Layout& layout) const {
    const Op old = kernel.op(copy.id);
    const DType dtype = kernel.type(old.operands[1]).dtype;
    const Shape shape = kernel.type(old.operands[0]).shape;
    std::vector<OpId> ops;
    ops.swap(kernel.region(copy.region).ops);
    Builder build(kernel, copy.region);
    for (OpId id : ops) {
      if (id != copy.id) {
        kernel.region(copy.region).ops.push_back(id);
        continue;
      }
      build.loc = old.loc;
      Value tile = build.alloc(Space::Shared, dtype, shape);
      set_layout(kernel.op(kernel.def(tile)), layout);
      build.emit(OpCode::Copy, {old.operands[0], tile}, reason("vector: from registers"));
      build.emit(OpCode::Copy, {tile, old.operands[1]},
                 reason(fmt::format("vector: rows in vectors of {} bytes, where a thread had {}",
                                    kVector, together(copy.id))));
    }
  }
  static Attrs reason(std::string text) {
    Attrs attrs;
    attrs.set("instruction", std::string("vector"));
    attrs.set("reason", std::move(text));
    return attrs;
  }

  // Those first which take the fewest wavefronts to write from the registers and to read in rows;
  // of equals the smallest.
  std::vector<Layout> tile_layouts(OpId id) const {
    const Coordinate& rows = shape(id);
    const int bytes = bytes_of(id);
    std::vector<Layout> layouts{shared_tile(rows, bytes), row_major(rows)};
    if (rows.size() > 1 && panel_bytes(rows.back(), bytes) == 128)
      layouts.push_back(swizzled_by(rows, bytes, kSwizzledPairs));
    for (int64_t pad = kVector; rows.size() > 1 && pad < 8 * kVector; pad += kVector)
      layouts.push_back(row_major(rows, rows.back() + pad / bytes));
    const Layout from = source_layout(id), to = blocked(rows, warps(), bytes);
    const auto cost = [&](const Layout& tile) {
      return std::pair(wavefronts(from, tile, bytes) + wavefronts(to, tile, bytes),
                       tile.extent(Resource::Offset));
    };
    std::stable_sort(layouts.begin(), layouts.end(),
                     [&](const Layout& a, const Layout& b) { return cost(a) < cost(b); });
    return layouts;
  }
  static int64_t wavefronts(const Layout& fragment, const Layout& tile, int bytes) {
    const int axis = fragment.rank() - 1;
    return access_wavefronts(fragment, tile, axis,
                             access_width(fragment, tile, axis, kVector / bytes), bytes);
  }

  Kernel& kernel_;
  const OpId launch_;
  const GpuTarget& target_;
  std::vector<StoreCopy> copies_;
};

}  // namespace

void stage_stores(Kernel& kernel) {
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops))
    if (kernel.op(id).code == OpCode::Launch) StageStores(kernel, id).run();
}

}  // namespace kiln
