#include "ir/layout/tile_layout.h"

#include "ir/layout/text.h"

namespace kiln {

std::optional<Layout> layout_of(const Op& op) {
  const std::string& text = op.word("layout");
  if (text.empty()) return std::nullopt;
  return parse_layout(text);
}

std::optional<Layout> tile_layout(const Kernel& kernel, Value storage) {
  const Value base = base_of(kernel, storage);
  if (const Op* alloc = kernel.def_as(base, OpCode::Alloc)) return layout_of(*alloc);
  const Op* channel = channel_of(kernel, base);
  return channel ? layout_of(*channel) : std::nullopt;
}

void set_layout(Op& op, const Layout& layout) {
  op.attrs.set("layout", layout_text(layout));
}

}  // namespace kiln
