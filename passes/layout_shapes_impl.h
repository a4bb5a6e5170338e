// Layouts made from a loop's or another tile's, so that threads find their elements.
#pragma once

#include <optional>
#include <vector>

#include "ir/layout/layout.h"

namespace kiln::layouts {

// Which axis of a loop indexes each axis of a fragment; kNoAxis where the index is 0.
using Axes = std::vector<int>;

// The fragment of this shape that a loop reaches through `axes`: each thread has what its points
// use.
Layout owned_by(const Layout& loop, const Axes& axes, const Coordinate& shape);

// The loop over `extents` in which each thread runs the points of its elements of `fragment`.
// Nothing if an axis of the loop does not index it.
std::optional<Layout> loop_over(const Layout& fragment, const Axes& axes,
                                const Coordinate& extents);

// The same registers as a tile of another shape that differs in axes of extent 1. Nothing if
// such an axis is padded.
std::optional<Layout> reshaped(const Layout& layout, const Coordinate& shape);

// As blocked(), but lines along `axis` stay within a warp, if there are enough of them.
Layout whole_lines(const Coordinate& shape, int axis, int64_t warps, int bytes);

// Every point once: where blocked() has copies, the threads left over have padding.
Layout one_owner(const Coordinate& extents, int64_t warps);

}  // namespace kiln::layouts
