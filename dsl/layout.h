// Wishes for where a tile's elements lie.
#pragma once

#include <string>

#include "dsl/storage.h"
#include "ir/layout/fragments.h"
#include "ir/layout/layout.h"
#include "ir/layout/shared.h"

namespace kiln {
inline namespace dsl {

// Of a shared tile: rows one after another, or in panels of 32, 64 or 128 bytes whose chunks of 16
// bytes are permuted so that a column of chunks touches all banks (ir/layout/shared.h).
enum class SharedLayout : uint8_t { RowMajor, Swizzled32, Swizzled64, Swizzled128 };
using enum SharedLayout;

// Never changes a result. GPUs keep a tile so where its launch can, others do not look; where it
// cannot (a fragment's layout for another number of warps, say), the lowered kernel and `kiln
// explain` say why. Once a tile, of the tile's shape; a layout is one of the makers' in ir/layout,
// or a text as ir/layout/text.h describes it and lowered kernels show it.
void annotate_layout(const Storage& tile, SharedLayout layout, Loc loc = Loc::here());
void annotate_layout(const Storage& tile, const Layout& layout, Loc loc = Loc::here());
void annotate_layout(const Storage& tile, const std::string& text, Loc loc = Loc::here());

}  // namespace dsl
}  // namespace kiln
