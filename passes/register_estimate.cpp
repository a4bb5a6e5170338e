// How many registers a thread of a launch takes. Counted are the fragments that are alive together,
// as a compiler's allocator finds them but by whole tiles, with what a step of a gemm has loaded.
// The rest is fitted to what ptxas 13.0 made of attention, gemms, softmax and copies for sm_80 to
// sm_120, each asked for one block a multiprocessor, two, three … until it spilled
// (tests/kernels/resources_test.cpp compares):
//
// Needed are 34 beside the tiles, for indices, bases and what is under way, with two gemms or more
// 42: as many as the worst of them takes, since a block fewer costs little and a spill much. Two
// for each 16 bytes that a thread copies in a round to a shared tile, as the row's address is kept
// (tiles of one shape whose tensors have the same extents share these). Three for each load from
// memory in a parallel, of all its points in a thread, and for each from a tensor in a copy to
// registers, but at most 96. Never less than 84 with a gemm, than 80 without.
//
// Wanted are 66 beside the tiles: what ptxas takes of a larger budget, to load operands early.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "ir/layout/reshape.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "passes/gemm_plan.h"
#include "passes/resources.h"

namespace kiln {
namespace {

constexpr int64_t kLanes = 32;
constexpr int64_t kChunk = 16;  // bytes that a thread copies at once
constexpr int64_t kBesideTiles = 34, kOfMoreGemms = 8;
constexpr int64_t kOfChunk = 2;
constexpr int64_t kLeast = 80, kLeastOfGemms = 84;
constexpr int64_t kWantedBesideTiles = 66;
constexpr int64_t kOfLoad = 3, kMostOfLoads = 96;
constexpr int64_t kFewWords = 8;  // of b: two loads of matrices

int64_t shares(int64_t elements, int64_t threads) {
  return (elements + threads - 1) / threads;
}

// A kind of copy: the tile, and the tensor's extents.
struct Copied {
  Type to;
  std::vector<Value> extents;
};

// Ops of kernels that say themselves how they are scheduled.
bool is_late(const Op& op) {
  const bool of_channels = op.code >= OpCode::Channel && op.code <= OpCode::CopyAsync;
  const bool late = op.code >= OpCode::Roles && op.code <= OpCode::NextTile && !of_channels;
  return late || op.code == OpCode::SoftmaxStep || op.code == OpCode::ScaleRows;
}

// Tiles, by value.
using Tiles = std::set<uint32_t>;

class Estimate {
 public:
  Estimate(const Kernel& kernel, const Op& launch, int64_t warps) : kernel_(kernel), warps_(warps) {
    const RegionId body = launch.regions[0];
    walk(kernel, body, [&](OpId id) {
      if (kernel.op(id).code == OpCode::Gemm) gemms_.push_back(&kernel.op(id));
    });
    walk(kernel, body, [&](OpId id) { add_fragment(kernel.op(id)); });
    survey_copies(body, false);
    Tiles alive;
    before_region(body, alive);
  }

  RegisterEstimate registers() const {
    int64_t needed = fewest_ + kBesideTiles, chunks = 0;
    if (gemms_.size() > 1) needed += kOfMoreGemms;
    for (const auto& [type, extents] : copied_)
      chunks += shares(count(type.shape) * static_cast<int64_t>(size_of(type.dtype)),
                       kChunk * kLanes * warps_);
    needed += kOfChunk * chunks;
    needed = std::max(needed, gemms_.empty() ? kLeast : kLeastOfGemms);
    return {needed, std::max(needed, most_ + kWantedBesideTiles)};
  }

 private:
  void add_fragment(const Op& op) {
    if (op.code != OpCode::Alloc || kernel_.type(op.result).space != Space::Fragment) return;
    // Halves are packed in pairs, bytes are not.
    const DType dtype = kernel_.type(op.result).dtype;
    const int64_t bytes = std::max<int64_t>(2, static_cast<int64_t>(size_of(dtype)));
    registers_[op.result.id] = (elements_of_thread(op) * bytes + 3) / 4;
  }

  int64_t elements_of_thread(const Op& alloc) const {
    if (auto layout = layout_of(alloc)) return layout->registers();
    const Shape shape = without_units(kernel_.type(alloc.result).shape);
    if (shape.empty()) return 1;
    for (const Op* gemm : gemms_) {
      const Shape c = without_units(kernel_.type(gemm->operands[2]).shape);
      const WarpGrid grid = gemm_warps(kernel_, *gemm, warps_);
      // A tile with the shape of a gemm's c mostly takes its layout. One with an element for each
      // row goes along: a lane has two rows of each sixteen.
      if (shape == c) return shares(count(shape), kLanes * grid.m * grid.n);
      if (c.size() == 2 && shape == Shape{c[0]}) return shares(c[0], 8 * grid.m);
    }
    return shares(count(shape), kLanes * warps_);
  }

  // The kinds of copies to shared tiles in rounds of loops.
  void survey_copies(RegionId region, bool in_loop) {
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      const bool loop = op.code == OpCode::For || op.code == OpCode::Loop;
      for (RegionId inner : op.regions) survey_copies(inner, in_loop || loop);
      if (!in_loop || (op.code != OpCode::Copy && op.code != OpCode::CopyAsync)) continue;
      const Type &from = kernel_.type(op.operands[0]), &to = kernel_.type(op.operands[1]);
      if (from.space != Space::Global || to.space != Space::Shared) continue;
      const OpId tensor = kernel_.def(base_of(kernel_, op.operands[0]));
      const std::vector<Value> extents =
          tensor ? kernel_.op(tensor).operands : std::vector<Value>{};
      const auto same = [&](const Copied& other) {
        return other.to.dtype == to.dtype && other.to.shape == to.shape && other.extents == extents;
      };
      if (std::none_of(copied_.begin(), copied_.end(), same)) copied_.push_back({to, extents});
    }
  }

  int64_t weight(const Tiles& alive) const {
    int64_t sum = 0;
    for (uint32_t tile : alive) sum += registers_.at(tile);
    return sum;
  }

  // From here on `alive` is what is alive after, and becomes what is alive before.
  void before_region(RegionId region, Tiles& alive) {
    const std::vector<OpId>& ops = kernel_.region(region).ops;
    for (auto id = ops.rbegin(); id != ops.rend(); ++id) before(kernel_.op(*id), alive);
  }
  void before(const Op& op, Tiles& alive) {
    switch (op.code) {
      case OpCode::For:
      case OpCode::Selected:
      case OpCode::Loop: return before_loop(op, alive);
      case OpCode::If: return before_branches(op, alive);
      case OpCode::Alloc: alive.erase(op.result.id); return;
      default: return before_work(op, alive);
    }
  }
  // After a round is alive what the next one reads, and what is read after the loop.
  void before_loop(const Op& op, Tiles& alive) {
    for (size_t known = alive.size() + 1; known != alive.size();) {
      known = alive.size();
      Tiles round = alive;
      before_region(op.regions[0], round);
      alive.insert(round.begin(), round.end());
    }
  }
  void before_branches(const Op& op, Tiles& alive) {
    const Tiles after = alive;
    if (op.regions.size() > 1) alive.clear();
    for (RegionId region : op.regions) {
      Tiles branch = after;
      before_region(region, branch);
      alive.insert(branch.begin(), branch.end());
    }
  }
  void before_work(const Op& op, Tiles& alive) {
    Tiles read, written;
    for (const Access& access : accesses_deep(kernel_, op))
      if (registers_.contains(access.base.id))
        (access.effect == Effect::Write ? written : read).insert(access.base.id);
    for (Value tile : stored_whole(op)) {
      if (!registers_.contains(tile.id)) continue;
      written.insert(tile.id);
      if (!loads(op, tile)) read.erase(tile.id);
    }
    Tiles after = alive;
    after.insert(written.begin(), written.end());
    for (uint32_t tile : written) alive.erase(tile);
    alive.insert(read.begin(), read.end());
    // A parallel goes from element to element: one takes the place of the other.
    int64_t tiles = std::max(weight(after), weight(alive));
    if (op.code != OpCode::Parallel) {
      after.insert(alive.begin(), alive.end());
      tiles = weight(after);
    }
    note(op, tiles);
  }

  // A step of a gemm has loaded a's rows, and of b's columns at least those of the next
  // instruction.
  void note(const Op& op, int64_t tiles) {
    int64_t rows = 0, columns = 0;
    if (op.code == OpCode::Gemm) {
      const GemmShape shape = gemm_shape(kernel_, op);
      const WarpGrid grid = gemm_warps(kernel_, op, warps_);
      const auto in_shared = [&](size_t i) {
        return kernel_.type(op.operands[i]).space == Space::Shared;
      };
      if (in_shared(0)) rows = shape.m / grid.m / 4;
      if (in_shared(1)) columns = shape.n / grid.n / 4;
    }
    fewest_ = std::max(fewest_, tiles + rows + std::min(columns, kFewWords) + loading(op));
    most_ = std::max(most_, tiles + rows + columns);
  }

  // Loads from memory under way: of all a thread's points in a parallel, of a copy to registers.
  int64_t loading(const Op& op) const {
    int64_t loads = 0;
    if (op.code == OpCode::Copy) loads = loads_of_copy(op);
    if (op.code == OpCode::Parallel) loads = loads_of_parallel(op);
    return std::min(kOfLoad * loads, kMostOfLoads);
  }
  int64_t loads_of_parallel(const Op& op) const {
    int64_t loads = 0;
    walk(kernel_, op.regions[0], [&](OpId id) {
      const Op& load = kernel_.op(id);
      loads += load.code == OpCode::Load && kernel_.type(load.operands[0]).space != Space::Fragment;
    });
    const auto layout = layout_of(op);
    const int64_t points =
        layout ? layout->registers() : shares(count(op.ints("extents")), kLanes * warps_);
    return loads * points;
  }
  // From a tensor: in shared memory one address serves many.
  int64_t loads_of_copy(const Op& op) const {
    const Type &from = kernel_.type(op.operands[0]), &to = kernel_.type(op.operands[1]);
    if (from.space != Space::Global || to.space != Space::Fragment) return 0;
    const int64_t whole = std::max<int64_t>(kChunk / static_cast<int64_t>(size_of(from.dtype)), 1);
    const auto layout = tile_layout(kernel_, op.operands[1]);
    if (!layout) return shares(count(to.shape), kLanes * warps_ * whole);
    int64_t width = 1;
    for (int axis = 0; axis < layout->rank(); ++axis)
      width = std::max(width, std::min(vector_width(*layout, axis), whole));
    return shares(layout->registers(), width);
  }

  // What the op surely writes all of, although it is not seen in its row of the table.
  std::vector<Value> stored_whole(const Op& op) const {
    if (op.code == OpCode::Gemm && op.flag("clear")) return {op.operands[2]};
    if (op.code == OpCode::Store && op.operands.size() == 2) return {op.operands[1]};
    if (op.code != OpCode::Parallel) return {};
    std::vector<Value> tiles;
    const Region& body = kernel_.region(op.regions[0]);
    for (OpId id : body.ops) {
      const Op& store = kernel_.op(id);
      if (store.code == OpCode::Store &&
          kernel_.type(store.operands[1]).shape == op.ints("extents") &&
          std::equal(store.operands.begin() + 2, store.operands.end(), body.args.begin(),
                     body.args.end()))
        tiles.push_back(store.operands[1]);
    }
    return tiles;
  }
  bool loads(const Op& op, Value tile) const {
    const std::vector<Access> all = accesses_deep(kernel_, op);
    return std::any_of(all.begin(), all.end(), [&](const Access& access) {
      return access.base == tile && access.effect == Effect::Read;
    });
  }

  const Kernel& kernel_;
  const int64_t warps_;
  std::vector<const Op*> gemms_;
  std::unordered_map<uint32_t, int64_t> registers_;  // of a thread, by fragment
  std::vector<Copied> copied_;
  int64_t fewest_ = 0, most_ = 0;  // of tiles alive together, without and with loads ahead
};

}  // namespace

RegisterEstimate estimate_registers(const Kernel& kernel, const Op& launch, int64_t warps) {
  bool late = false;
  walk(kernel, launch.regions[0], [&](OpId id) { late |= is_late(kernel.op(id)); });
  // Nothing is known of these, so ptxas is not to do with less than all.
  if (late) return {GpuTarget::kMostRegisters, GpuTarget::kMostRegisters};
  return Estimate(kernel, launch, warps).registers();
}

}  // namespace kiln
