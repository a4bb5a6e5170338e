// Pairs of layouts, and moving elements between tiles that have them.
#include <algorithm>

#include "ir/error.h"
#include "ir/layout/locality.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "passes/infer_layouts_impl.h"

namespace kiln::layouts {

Ref Pool::operator()(Layout layout) {
  auto found = std::find(layouts_.begin(), layouts_.end(), layout);
  if (found == layouts_.end()) found = layouts_.insert(found, std::move(layout));
  return &*found;
}

const std::optional<std::vector<int>>& Pool::local(Ref loop, const Axes& axes, Ref fragment) {
  auto [found, is_new] = local_.try_emplace({loop, axes, fragment});
  if (is_new) found->second = local_registers(*loop, axes, *fragment);
  return found->second;
}

bool Pool::writes_all(Ref loop, const Axes& axes, Ref fragment) {
  const auto& written = local(loop, axes, fragment);
  Axes back(loop->shape().size(), kNoAxis);  // where the loop's axes are in the fragment
  for (size_t k = 0; k < axes.size(); ++k)
    if (axes[k] != kNoAxis) back[static_cast<size_t>(axes[k])] = static_cast<int>(k);
  const auto& owners = local(fragment, back, loop);
  if (!written || !owners) return false;
  std::vector<bool> reached(owners->size(), false);
  for (const int reg : *written)
    if (reg >= 0) reached[static_cast<size_t>(reg)] = true;
  for (size_t reg = 0; reg < reached.size(); ++reg)
    if ((*owners)[reg] >= 0 && !reached[reg]) return false;
  return true;
}

const Conversion& Pool::conversion(Ref from, Ref to, int bytes) {
  auto [found, is_new] = conversions_.try_emplace({from, to, bytes});
  if (is_new) found->second = plan_conversion(*from, *to, bytes);
  return found->second;
}

Ref Tiles::find(Value tile) const {
  const auto found = layouts_.find(tile.id);
  return found == layouts_.end() ? nullptr : found->second;
}

Ref Tiles::at(Value tile) const {
  if (Ref layout = find(tile)) return layout;
  throw InternalError("infer_layouts: a tile without a layout, or a slice of a fragment");
}

void Tiles::give(Value tile, Layout layout) {
  layouts_[tile.id] = pool(layout);
  set_layout(kernel.op(kernel.def(tile)), layout);
}

Value Tiles::fragment(Builder& build, DType dtype, const Shape& shape, const Layout& layout) {
  Value tile = build.alloc(Space::Fragment, dtype, shape);
  give(tile, layout);
  return tile;
}

Value Tiles::shared(Builder& build, DType dtype, const Shape& shape) {
  return shared(build, dtype, shape, shared_tile(shape, static_cast<int>(size_of(dtype))));
}

Value Tiles::shared(Builder& build, DType dtype, const Shape& shape, const Layout& layout) {
  Value tile = build.alloc(Space::Shared, dtype, shape);
  give(tile, layout);
  return tile;
}

// By cast first, register by register, to the destination's shape and dtype; then to its layout.
void Tiles::move(Builder& build, Value from, Value to) {
  const Type source = kernel.type(from), target = kernel.type(to);
  const std::optional<Layout> same = reshaped(*at(from), target.shape);
  const Ref wanted = at(to);
  if (same && *same == *wanted) return copy(build, from, to);

  const int bytes = static_cast<int>(size_of(target.dtype));
  if (same && pool.in_registers(pool(*same), wanted, bytes)) {
    Value changed = from;
    if (source != target) {
      changed = fragment(build, target.dtype, target.shape, *same);
      copy(build, from, changed);
    }
    build.emit(OpCode::Convert, {changed, to});
    return;
  }
  const bool narrows = size_of(target.dtype) < size_of(source.dtype);
  const DType dtype = narrows ? target.dtype : source.dtype;
  Value staged = same ? shared(build, dtype, target.shape,
                               *pool.conversion(pool(*same), wanted, bytes).staging)
                      : shared(build, dtype, target.shape);
  copy(build, from, staged);
  copy(build, staged, to);
}

}  // namespace kiln::layouts
