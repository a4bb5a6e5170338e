// How a thread goes through a box of elements, register by register, and through memory with it.
#pragma once

#include <map>
#include <optional>

#include "codegen/nvptx_memory_impl.h"

namespace kiln::nvptx {

// A box spread over the threads by register, lane and warp. Step s is register s of the layout, or
// its s-th vector along an axis. Almost always a coordinate is a constant of the step plus a value
// of the thread, computed once.
class Walk {
 public:
  // `vector` divides vector_width(layout, axis).
  Walk(Emitter& emitter, const Layout& layout, int axis = 0, int64_t vector = 1);

  int64_t steps() const { return layout_.registers(); }
  int axis() const { return axis_; }
  int64_t vector() const { return vector_; }
  const Layout& layout() const { return layout_; }  // counts in vectors along the axis
  const Coordinate& shape() const { return shape_; }
  bool adds_up() const { return adds_up_; }

  // Of the step's first element, in elements.
  Values coordinate(int64_t step);
  Values coordinate(Val step);
  Coordinate constants(int64_t step) const;                    // if it adds up
  Interval range(int64_t step, int axis) const;                // of all threads' coordinates
  Val in_tile(int64_t step, std::span<const Val> coordinate);  // not padding; null: surely
  Val in_tile(std::span<const Val> coordinate);

 private:
  int64_t unit(int axis) const { return axis == axis_ ? vector_ : 1; }

  Emitter& emitter_;
  Layout layout_;
  int axis_;
  int64_t vector_;
  Coordinate shape_;
  bool adds_up_ = true;
  Coordinate thread_most_;  // of the thread's part, in elements
  Values thread_;
  std::map<std::pair<size_t, int64_t>, Val> sums_;  // by axis and constant, in this block:
  llvm::BasicBlock* block_ = nullptr;
};

// Of the threads that hold copies of one element, is this the first? Null if there are none.
Val first_copy(Emitter& emitter, const Layout& layout);

// The axis of `walk` that each axis of `place` is: those whose extent is not 1, in order; else
// kNoAxis. InternalError if they do not agree.
std::vector<int> paired_axes(const Shape& place, const Coordinate& walk);
// The index into a place at a coordinate of the walk.
Values picked(Builder& b, std::span<const int> paired, std::span<const Val> coordinate);
Shape sizes_of(const Place& place);

// Memory that is gone through by a walk over its axes (but for extents of 1). Addresses and
// conditions are emitted where they are first asked for, so ask outside of branches.
class Side {
 public:
  Side(Emitter& emitter, const Place& place, Walk& walk);

  Val pointer(int64_t step);
  // In the walk's tile and inside the place; null: surely. Equal conditions are one value.
  Val condition(int64_t step);

 private:
  Val row(const Coordinate& constants);
  std::optional<Layout> walk_over_view() const;

  Emitter& emitter_;
  Place place_;
  Walk& walk_;
  std::vector<int> axes_;  // paired_axes
  std::optional<SharedAddresses> shared_;
  std::map<Coordinate, Val> conditions_;
  std::map<Coordinate, Val> rows_;  // global: by the constants of all axes but the last
  Coordinate last_;                 // the row emitted last
};

// The widest vectors (in elements) along an axis of `place` of which all registers of `layout` are
// made and that memory holds together, at most 16 bytes. `paired` are paired_axes.
int64_t widest_vectors(const Place& place, const Layout& layout, std::span<const int> paired,
                       int axis);
// Are all vectors of a view aligned, and each inside or outside as a whole? Null: surely. `own`: a
// tensor need be aligned for these vectors only, which takes a condition of their own.
Val whole_vectors(Emitter& emitter, const Place& place, std::span<const int> paired, int axis,
                  int64_t vector, bool own = false);

}  // namespace kiln::nvptx
