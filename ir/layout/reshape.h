// Layouts of tiles made from tiles: an axis reduced away, added, moved, or counted in vectors.
#pragma once

#include <optional>
#include <vector>

#include "ir/layout/formula.h"
#include "ir/layout/layout.h"

namespace kiln {

// The tile without `axis`, as a reduction leaves it: every lane and warp that held a part of the
// line (…, *, …) holds its result. A thread holds it once: registers that only spanned the axis go.
// Holders: (lane, warp) owns c  iff  it owned some element of the line c in `layout`.
Layout reduce_axis(const Layout& layout, int axis);

// A new axis of extent 1 before `axis`.
Layout insert_axis(const Layout& layout, int axis);

// `count` tiles stored as `layout` (by Offset) in a row, counted by a new axis in front; each
// begins at a multiple of `unit` elements.
Layout stacked(const Layout& layout, int64_t count, int64_t unit);
// What each place of the first axis of such a stack, or of any tile whose first axis is stored so
// (InternalError if not), holds, and the distance of two in Offset.
struct Stacked {
  Layout part;
  int64_t stride = 0;
};
Stacked unstacked(const Layout& layout);

// Axis i of the result is axis order[i] of `layout`; {1, 0} transposes.
Layout permute_axes(const Layout& layout, const std::vector<int>& order);

// The largest power of two v so that every aligned group of v registers (of a thread) or offsets is
// v consecutive elements along `axis`, starting at a multiple of v, all inside or all outside the
// tile. 1 at least.
int64_t vector_width(const Layout& layout, int axis);

// The layout of vectors of v elements along `axis`: index r of the result's registers or offsets is
// group r of `layout`, coordinate c of `axis` its elements from c * v on. v divides
// vector_width(layout, axis), or InternalError.
Layout in_vectors(const Layout& layout, int axis, int64_t v);

// How a fragment is reduced along an axis: within the thread, then across lanes, then across warps.
struct ReducePlan {
  Layout result;  // reduce_axis(source, axis)
  // sources[r]: the source's registers that each thread combines into register r of the result;
  // each element once. Those that hold padding count as the operation's neutral element.
  std::vector<std::vector<int>> sources;
  // Then, for each mask in turn, with the same register of lane ^ mask.
  std::vector<int> lane_masks;
  // Then over the warps with part = 0, 1, …, parts - 1 (equal parts are copies of each other),
  // through shared memory. parts = 1: nothing to do.
  int64_t parts = 1;
  Formula part;  // of the warp
};

// Nothing if copies are not aligned to bits, which no constructor here makes: then convert first.
std::optional<ReducePlan> plan_reduction(const Layout& source, int axis);

}  // namespace kiln
