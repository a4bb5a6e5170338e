#include "ir/layout/tile_layout.h"

#include <fmt/format.h>
#include "ir/layout/shared.h"

#include "ir/layout/text.h"

namespace kiln {

std::optional<Layout> layout_of(const Op& op) {
  const std::string& text = op.word("layout");
  if (text.empty()) return std::nullopt;
  return parse_layout(text);
}

std::optional<Layout> tile_layout(const Kernel& kernel, Value storage) {
  const Value base = whole_of(kernel, storage);
  if (kernel.def_as(base, OpCode::Reshape)) return row_major(kernel.type(base).shape);
  if (const Op* alloc = kernel.def_as(base, OpCode::Alloc)) return layout_of(*alloc);
  const Op* channel = channel_of(kernel, base);
  return channel ? layout_of(*channel) : std::nullopt;
}

std::string layout_misfit(const Layout& layout, const Shape& shape, Space space) {
  constexpr int64_t kLanes = 32;
  if (layout.shape() != shape)
    return fmt::format("expected one over {}, got {}", str(shape), str(layout.shape()));
  const bool by_offset = layout.extent(Resource::Offset) > 1;
  const bool by_thread =
      layout.extent(Resource::Lane) > 1 || layout.registers() > 1 || layout.warps() > 1;
  if (space == Space::Shared) {
    if (by_thread) return "expected one by offset in shared memory, got one by thread";
    if (!layout.is_injective()) return "expected one place an element, got several";
    return "";
  }
  if (space == Space::Fragment && !by_offset && layout.extent(Resource::Lane) == kLanes) return "";
  if (space != Space::Fragment) return "expected none: only shared tiles and fragments have one";
  return fmt::format(
      "expected one by register, {} lanes and warp, got {}", kLanes,
      by_offset ? "one by offset" : fmt::format("{} lanes", layout.extent(Resource::Lane)));
}

void set_layout(Op& op, const Layout& layout) {
  op.attrs.set("layout", layout_text(layout));
}

}  // namespace kiln
