#include "ir/layout/tile_layout.h"

#include "ir/layout/text.h"

namespace kiln {

std::optional<Layout> layout_of(const Op& op) {
  const std::string& text = op.word("layout");
  if (text.empty()) return std::nullopt;
  return parse_layout(text);
}

std::optional<Layout> tile_layout(const Kernel& kernel, Value storage) {
  const Op* alloc = kernel.def_as(base_of(kernel, storage), OpCode::Alloc);
  return alloc ? layout_of(*alloc) : std::nullopt;
}

void set_layout(Op& op, const Layout& layout) {
  op.attrs.set("layout", layout_text(layout));
}

}  // namespace kiln
