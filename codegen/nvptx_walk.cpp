// Coordinates, addresses and conditions of a thread's registers. What is the same for many
// registers is emitted once, so that what is left of each is a constant in its instruction.
#include "codegen/nvptx_walk_impl.h"

#include <algorithm>

#include "codegen/nvptx_shared_impl.h"
#include "ir/error.h"
#include "ir/layout/reshape.h"

namespace kiln::nvptx {
namespace {

Val is_multiple(Builder& b, Val value, int64_t of) {
  return b.ir.CreateICmpEQ(b.ir.CreateAnd(value, b.i32(of - 1)), b.i32(0));
}

// A condition, null if it is known to hold.
Val unless_known(Val condition) {
  auto* known = llvm::dyn_cast_or_null<llvm::ConstantInt>(condition);
  return known && known->isOne() ? nullptr : condition;
}

// Are a tensor's address and its strides multiples of so many elements?
Val is_aligned(Builder& b, const Place& place, int64_t elements) {
  const int64_t size = static_cast<int64_t>(size_of(place.dtype)), bytes = elements * size;
  if (!place.aligned || bytes == 16) return place.aligned;
  auto& ir = b.ir;
  Val mixed = ir.CreatePtrToInt(place.pointer, ir.getInt64Ty());
  for (size_t axis = 0; axis + 1 < place.axes.size(); ++axis)
    mixed = ir.CreateOr(mixed, ir.CreateMul(place.axes[axis].stride, b.i64(size)));
  return ir.CreateICmpEQ(ir.CreateAnd(mixed, b.i64(bytes - 1)), b.i64(0));
}

}  // namespace

Walk::Walk(Emitter& emitter, const Layout& layout, int axis, int64_t vector)
    : emitter_(emitter),
      layout_(vector > 1 ? in_vectors(layout, axis, vector) : layout),
      axis_(axis),
      vector_(vector),
      shape_(layout.shape()) {
  for (int k = 0; k < layout_.rank(); ++k) {
    const auto at = static_cast<size_t>(k);
    int64_t registers = 0, threads = 0, most = 0;
    for (const Resource resource : kResources)
      for (const Coordinate& image : layout_.atom()[resource])
        (resource == Resource::Reg ? registers : threads) |= image[at];
    for (const Digit& digit : layout_.digits())
      if (digit.axis == k && digit.resource != Resource::Reg)
        most += (digit.extent - 1) * digit.axis_stride;
    if (registers & threads) adds_up_ = false;
    thread_most_.push_back((threads + most) * unit(k));
  }
  if (adds_up_) thread_ = coordinate(emitter.b.i32(0));
}

Values Walk::coordinate(Val step) {
  Values c = emitter_.coordinate(layout_, step);
  if (vector_ > 1) {
    Val& at = c[static_cast<size_t>(axis_)];
    at = emitter_.b.ir.CreateMul(at, emitter_.b.i32(vector_));
  }
  return c;
}

Values Walk::coordinate(int64_t step) {
  if (!adds_up_) return coordinate(emitter_.b.i32(step));
  Builder& b = emitter_.b;
  if (std::exchange(block_, b.ir.GetInsertBlock()) != b.ir.GetInsertBlock()) sums_.clear();
  const Coordinate constant = constants(step);
  Values c = thread_;
  for (size_t k = 0; k < c.size(); ++k) {
    if (constant[k] == 0) continue;
    Val& sum = sums_[{k, constant[k]}];
    if (!sum) sum = b.ir.CreateAdd(c[k], b.i32(constant[k]));
    c[k] = sum;
  }
  return c;
}

Coordinate Walk::constants(int64_t step) const {
  Coordinate c = layout_.coordinate({.reg = step});
  if (vector_ > 1) c[static_cast<size_t>(axis_)] *= vector_;
  return c;
}

Interval Walk::range(int64_t step, int axis) const {
  const auto at = static_cast<size_t>(axis);
  if (!adds_up_) return {0, layout_.padded_shape()[at] * unit(axis) - 1};
  const int64_t least = constants(step)[at];
  return {least, least + thread_most_[at]};
}

Val Walk::in_tile(int64_t step, std::span<const Val> coordinate) {
  if (!layout_.is_padded()) return nullptr;
  Builder& b = emitter_.b;
  Val inside = nullptr;
  for (int k = 0; k < layout_.rank(); ++k) {
    const auto at = static_cast<size_t>(k);
    if (range(step, k).high >= shape_[at])
      inside = b.both(inside, b.ir.CreateICmpSLT(coordinate[at], b.i32(shape_[at])));
  }
  return inside;
}

Val Walk::in_tile(std::span<const Val> coordinate) {
  if (!layout_.is_padded()) return nullptr;
  Builder& b = emitter_.b;
  Val inside = nullptr;
  for (size_t k = 0; k < coordinate.size(); ++k)
    if (layout_.padded_shape()[k] > layout_.shape()[k])
      inside = b.both(inside, b.ir.CreateICmpSLT(coordinate[k], b.i32(shape_[k])));
  return inside;
}

Val first_copy(Emitter& emitter, const Layout& layout) {
  if (layout.is_injective()) return nullptr;
  Builder& b = emitter.b;
  Val first = nullptr;
  const auto require_zero = [&](Val part) {
    first = b.both(first, b.ir.CreateICmpEQ(part, b.i32(0)));
  };
  for (const Resource resource : {Resource::Lane, Resource::Warp}) {
    Val thread = resource == Resource::Lane ? emitter.lane() : emitter.warp();
    const Images& images = layout.atom()[resource];
    int64_t bits = 0;
    for (size_t bit = 0; bit < images.size(); ++bit)
      if (std::ranges::all_of(images[bit], [](int64_t c) { return c == 0; }))
        bits |= int64_t{1} << bit;
    if (bits != 0) require_zero(b.ir.CreateAnd(thread, b.i32(bits)));
    for (const Digit& digit : layout.digits())
      if (digit.resource == resource && digit.axis == kNoAxis)
        require_zero(
            b.ir.CreateURem(b.ir.CreateUDiv(thread, b.i32(digit.stride)), b.i32(digit.extent)));
  }
  return first;
}

Shape sizes_of(const Place& place) {
  Shape sizes;
  for (const Axis& axis : place.axes) sizes.push_back(axis.size);
  return sizes;
}

std::vector<int> paired_axes(const Shape& place, const Coordinate& walk) {
  if (without_units(place) != without_units(walk)) throw InternalError("copy: shapes do not agree");
  std::vector<int> paired;
  int next = 0;
  for (const int64_t size : place) {
    if (size == 1) {
      paired.push_back(kNoAxis);
      continue;
    }
    while (walk[static_cast<size_t>(next)] == 1) ++next;
    paired.push_back(next++);
  }
  return paired;
}

Values picked(Builder& b, std::span<const int> paired, std::span<const Val> coordinate) {
  Values index;
  for (const int axis : paired)
    index.push_back(axis == kNoAxis ? b.i32(0) : coordinate[static_cast<size_t>(axis)]);
  return index;
}

Side::Side(Emitter& emitter, const Place& place, Walk& walk)
    : emitter_(emitter),
      place_(place),
      walk_(walk),
      axes_(paired_axes(sizes_of(place), walk.shape())) {
  if (place.space == Space::Shared) {
    if (auto over = walk_over_view()) {
      const auto axis = std::find(axes_.begin(), axes_.end(), walk.axis());
      shared_.emplace(emitter, place, *over,
                      axis == axes_.end() ? 0 : static_cast<int>(axis - axes_.begin()),
                      walk.vector());
    }
    return;
  }
  if (!walk.adds_up()) return;
  // The view's start and the thread's part apart: one is the same for the whole block, the other
  // for the whole kernel.
  Builder& b = emitter.b;
  Val offset = b.i64(0);
  const Values coordinate = walk.coordinate(int64_t{0});
  const Coordinate constants = walk.constants(0);
  for (size_t k = 0; k < axes_.size(); ++k) {
    const Axis& axis = place.axes[k];
    const auto add = [&](Val part) {
      part = b.ir.CreateSExt(part, b.ir.getInt64Ty());
      offset = b.ir.CreateAdd(offset, b.ir.CreateMul(part, axis.stride));
    };
    add(axis.start);
    if (axes_[k] != kNoAxis) add(coordinate[static_cast<size_t>(axes_[k])]);
  }
  last_.assign(axes_.size(), 0);
  rows_[last_] = b.ir.CreateGEP(b.memory_type(place.dtype), place.pointer, offset);
}

// The walk as a layout over the view's own axes; none if it pads an axis that the view lacks.
std::optional<Layout> Side::walk_over_view() const {
  Layout layout = walk_.layout();
  for (int k = layout.rank(); k-- > 0;) {
    if (std::ranges::find(axes_, k) != axes_.end()) continue;
    if (layout.padded_shape()[static_cast<size_t>(k)] != 1) return std::nullopt;
    layout = reduce_axis(layout, k);
    if (layout.registers() != walk_.steps()) return std::nullopt;  // it had copies
  }
  for (size_t k = 0; k < axes_.size(); ++k)
    if (axes_[k] == kNoAxis) layout = insert_axis(layout, static_cast<int>(k));
  return layout;
}

// Each row from the one before, so that rows at equal distances need one product.
Val Side::row(const Coordinate& constants) {
  if (auto it = rows_.find(constants); it != rows_.end()) return it->second;
  Builder& b = emitter_.b;
  Val pointer = rows_.at(last_);
  for (size_t k = 0; k < constants.size(); ++k)
    if (const int64_t step = constants[k] - last_[k])
      pointer = b.ir.CreateGEP(b.memory_type(place_.dtype), pointer,
                               b.ir.CreateMul(b.i64(step), place_.axes[k].stride));
  last_ = constants;
  return rows_[constants] = pointer;
}

Val Side::pointer(int64_t step) {
  if (shared_) return (*shared_)(step);
  if (place_.space == Space::Shared || !walk_.adds_up())
    return emitter_.address(place_, picked(emitter_.b, axes_, walk_.coordinate(step)));
  const Coordinate constants = walk_.constants(step);
  Coordinate of_row;
  for (const int axis : axes_)
    of_row.push_back(axis == kNoAxis ? 0 : constants[static_cast<size_t>(axis)]);
  const int64_t column = of_row.empty() ? 0 : std::exchange(of_row.back(), 0);
  Val pointer = row(of_row);
  if (column == 0) return pointer;
  Builder& b = emitter_.b;
  return b.ir.CreateGEP(b.memory_type(place_.dtype), pointer, b.i64(column));
}

Val Side::condition(int64_t step) {
  std::vector<Interval> ranges;
  Coordinate key;  // what the condition depends on
  for (size_t k = 0; k < axes_.size(); ++k) {
    const int axis = axes_[k];
    const Interval range = axis == kNoAxis ? Interval{0, 0} : walk_.range(step, axis);
    // Padding is outside whatever the memory is.
    ranges.push_back({range.low, std::min(range.high, place_.axes[k].size - 1)});
    const bool sure =
        range.low >= place_.axes[k].sure_begin && ranges[k].high < place_.axes[k].sure_end;
    key.push_back(sure ? -1 : range.low);
  }
  for (int axis = 0; axis < walk_.layout().rank(); ++axis) {
    const Interval range = walk_.range(step, axis);
    key.push_back(range.high < walk_.shape()[static_cast<size_t>(axis)] ? -1 : range.low);
  }
  if (!walk_.adds_up()) key.push_back(step);
  if (auto it = conditions_.find(key); it != conditions_.end()) return it->second;
  const Values coordinate = walk_.coordinate(step);
  Val condition =
      emitter_.b.both(walk_.in_tile(step, coordinate),
                      emitter_.inside(place_, picked(emitter_.b, axes_, coordinate), ranges));
  return conditions_[key] = unless_known(condition);
}

int64_t widest_vectors(const Place& place, const Layout& layout, std::span<const int> paired,
                       int axis) {
  const auto it = std::find(paired.begin(), paired.end(), axis);
  if (it == paired.end()) return 1;
  const auto at = static_cast<int>(it - paired.begin());
  const int64_t most = 16 / static_cast<int64_t>(size_of(place.dtype));
  int64_t memory = most;
  if (place.space == Space::Shared)
    memory = view_vector(place, at);
  else if (at + 1 != static_cast<int>(paired.size()))
    return 1;
  return std::min({vector_width(layout, axis), memory, most});
}

Val whole_vectors(Emitter& emitter, const Place& place, std::span<const int> paired, int axis,
                  int64_t vector, bool own) {
  if (vector == 1) return nullptr;
  Builder& b = emitter.b;
  const Axis& along = place.axes[static_cast<size_t>(std::find(paired.begin(), paired.end(), axis) -
                                                     paired.begin())];
  Val condition = nullptr;
  if (place.space == Space::Global)
    condition = b.both(own ? is_aligned(b, place, vector) : place.aligned,
                       unless_known(is_multiple(b, along.start, vector)));
  if (along.surely_inside()) return condition;
  condition = b.both(condition, unless_known(is_multiple(b, along.low, vector)));
  return b.both(condition, unless_known(is_multiple(b, along.high, vector)));
}

}  // namespace kiln::nvptx
