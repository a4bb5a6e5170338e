// The layouts that passes have given to tiles and loops: attribute `layout` of alloc, parallel and
// channel.
#pragma once

#include <optional>
#include <string>

#include "ir/kernel.h"
#include "ir/layout/layout.h"

namespace kiln {

// Of the tile that `storage` is, or is a view of; none if it has none, or is a tensor.
std::optional<Layout> tile_layout(const Kernel& kernel, Value storage);

// Why a layout is not one of a tile of this shape in this space, "expected … got …"; empty if it
// is.
std::string layout_misfit(const Layout& layout, const Shape& shape, Space space);

// Of an alloc, a parallel or a channel.
std::optional<Layout> layout_of(const Op& op);
void set_layout(Op& op, const Layout& layout);

}  // namespace kiln
