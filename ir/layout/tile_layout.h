// The layouts that passes have given to tiles and loops: attribute `layout` of alloc, parallel and
// channel.
#pragma once

#include <optional>

#include "ir/kernel.h"
#include "ir/layout/layout.h"

namespace kiln {

// Of the tile that `storage` is, or is a view of; none if it has none, or is a tensor.
std::optional<Layout> tile_layout(const Kernel& kernel, Value storage);

// Of an alloc, a parallel or a channel.
std::optional<Layout> layout_of(const Op& op);
void set_layout(Op& op, const Layout& layout);

}  // namespace kiln
