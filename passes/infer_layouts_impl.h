// The parts of infer_layouts: layouts are assigned to a launch's tiles, which decides only speed;
// then each op is made legal, which is what correctness rests on.
#pragma once

#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>

#include "ir/layout/conversion.h"
#include "passes/layout_shapes_impl.h"
#include "passes/rewrite.h"

namespace kiln::layouts {

// A layout of a pool: equal layouts have equal addresses.
using Ref = const Layout*;

// Layouts, and what was found out about pairs of them.
class Pool {
 public:
  Ref operator()(Layout layout);

  const std::optional<std::vector<int>>& local(Ref loop, const Axes& axes, Ref fragment);
  // A loop that stores through `axes` reaches every copy of every element of the fragment.
  bool writes_all(Ref loop, const Axes& axes, Ref fragment);
  const Conversion& conversion(Ref from, Ref to, int bytes);
  bool in_registers(Ref from, Ref to, int bytes) {
    return conversion(from, to, bytes).kind != Conversion::Kind::Shared;
  }

 private:
  std::deque<Layout> layouts_;
  std::map<std::tuple<Ref, Axes, Ref>, std::optional<std::vector<int>>> local_;
  std::map<std::tuple<Ref, Ref, int>, Conversion> conversions_;
};

// The tiles of one launch and the layouts they have got.
class Tiles {
 public:
  Tiles(Kernel& kernel, int64_t warps) : kernel(kernel), warps(warps) {}

  Kernel& kernel;
  const int64_t warps;
  Pool pool;

  bool is_fragment(Value storage) const { return kernel.type(storage).space == Space::Fragment; }
  Ref find(Value tile) const;  // null: none yet
  Ref at(Value tile) const;    // InternalError if none
  void give(Value tile, Layout layout);

  std::vector<OpId> wished;  // allocs of shared tiles that have the layout which they came with

  // New tiles, and what moves elements between tiles, appended by the builder.
  Value fragment(Builder& build, DType dtype, const Shape& shape, const Layout& layout);
  Value shared(Builder& build, DType dtype, const Shape& shape);
  Value shared(Builder& build, DType dtype, const Shape& shape, const Layout& layout);
  void copy(Builder& build, Value from, Value to) { build.emit(OpCode::Copy, {from, to}); }
  // Between fragments of any layouts, whose shapes agree once extents of 1 are dropped.
  void move(Builder& build, Value from, Value to);

 private:
  std::unordered_map<uint32_t, Ref> layouts_;  // by value id of the alloc
};

// A load or store of a fragment in a parallel.
struct Use {
  OpId op;
  Value tile;
  Axes axes;
  bool stores;

  size_t operand() const { return stores ? 1 : 0; }  // of the tile, in the op
};
struct LoopUses {
  std::vector<Use> fragments;
  bool rereads_memory = false;  // writes a shared tile or tensor that it also reads
};
LoopUses uses_of(const Kernel& kernel, const Op& parallel);

// Layouts that make one use or the other local, those of stored fragments first; blocked() last.
std::vector<Ref> loop_candidates(Tiles& tiles, const Shape& extents, const LoopUses& uses);

// The layout of what a reduction of the source leaves, with the axis kept as 1 or not. Nothing if
// the source cannot be reduced as it is.
std::optional<Layout> reduced(const Layout& source, int64_t dim, bool keeps_axis);

// Layouts that the kernel wishes for (annotate_layout). `why_not_wished`: why the launch cannot
// keep an alloc's tile so; empty if it can. `decline` gives the reason to whoever looks.
std::string why_not_wished(const Tiles& tiles, const Op& alloc, const Layout& wish, RegionId body);
void decline(Op& alloc, const std::string& reason);
// Takes the wishes for shared tiles back if the block has not the memory for them.
void fit_wishes(Tiles& tiles, OpId launch);

void assign_layouts(Tiles& tiles, RegionId body);
// Of shared tiles, once all that uses them is legal: the swizzle with the fewest bank conflicts.
void choose_swizzles(Tiles& tiles, RegionId body);

// Make one op legal: append it, with what it needs before and after. The op is in no region.
void legalise_parallel(Tiles& tiles, Builder& build, OpId loop);
void legalise_gemm(Tiles& tiles, Builder& build, OpId gemm);
void legalise_reduce(Tiles& tiles, Builder& build, OpId reduce);

}  // namespace kiln::layouts
