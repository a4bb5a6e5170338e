#include <algorithm>

#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "passes/layout_shapes_impl.h"

namespace kiln::layouts {
namespace {

constexpr int kLanes = 32;
constexpr int kWidest = 16;  // bytes of a vector: of elements that large, one

int64_t tiles(int64_t extent, int64_t tile) {
  return (extent + tile - 1) / tile;
}

// Cropped to the shape; where the layout is too small, its registers repeat.
Layout fitted(Layout layout, const Coordinate& shape) {
  const Coordinate padded = layout.padded_shape();
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (padded[axis] < shape[axis])
      layout =
          layout.repeat(Resource::Reg, tiles(shape[axis], padded[axis]), static_cast<int>(axis));
  return layout.crop(shape);
}

// The places of `kept`, in ascending order of what they hold.
std::vector<int> sorted_places(const Axes& kept) {
  std::vector<int> order(kept.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return kept[static_cast<size_t>(a)] < kept[static_cast<size_t>(b)];
  });
  return order;
}

bool indexes(const Axes& axes, int axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

}  // namespace

Layout owned_by(const Layout& loop, const Axes& axes, const Coordinate& shape) {
  Layout layout = loop;
  for (int axis = loop.rank(); axis-- > 0;)
    if (!indexes(axes, axis)) layout = reduce_axis(layout, axis);
  Axes kept;
  for (const int axis : axes)
    if (axis != kNoAxis) kept.push_back(axis);
  std::vector<int> order(kept.size());  // the inverse of sorting them
  const std::vector<int> places = sorted_places(kept);
  for (size_t i = 0; i < places.size(); ++i)
    order[static_cast<size_t>(places[i])] = static_cast<int>(i);
  layout = permute_axes(layout, order);
  for (size_t k = 0; k < axes.size(); ++k)
    if (axes[k] == kNoAxis) layout = insert_axis(layout, static_cast<int>(k));
  return fitted(std::move(layout), shape);
}

std::optional<Layout> loop_over(const Layout& fragment, const Axes& axes,
                                const Coordinate& extents) {
  const Coordinate padded = fragment.padded_shape();
  Layout layout = fragment;
  Axes kept;
  for (size_t k = axes.size(); k-- > 0;) {
    if (axes[k] != kNoAxis) {
      kept.insert(kept.begin(), axes[k]);
      continue;
    }
    if (padded[k] != 1) return std::nullopt;
    layout = reduce_axis(layout, static_cast<int>(k));
  }
  layout = permute_axes(layout, sorted_places(kept));
  for (size_t axis = 0; axis < extents.size(); ++axis) {
    if (indexes(axes, static_cast<int>(axis))) continue;
    if (extents[axis] != 1) return std::nullopt;
    layout = insert_axis(layout, static_cast<int>(axis));
  }
  return fitted(std::move(layout), extents);
}

std::optional<Layout> reshaped(const Layout& layout, const Coordinate& shape) {
  if (layout.shape() == shape) return layout;
  const Coordinate padded = layout.padded_shape();
  Layout result = layout;
  for (size_t axis = padded.size(); axis-- > 0;) {
    if (layout.shape()[axis] != 1) continue;
    if (padded[axis] != 1) return std::nullopt;
    result = reduce_axis(result, static_cast<int>(axis));
  }
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (shape[axis] == 1) result = insert_axis(result, static_cast<int>(axis));
  if (result.registers() != layout.registers()) return std::nullopt;  // it had copies
  return result;
}

Layout whole_lines(const Coordinate& shape, int axis, int64_t warps, int bytes) {
  for (size_t other = 0; other < shape.size(); ++other) {
    if (static_cast<int>(other) == axis || shape[other] < warps) continue;
    Coordinate share = shape;
    share[other] = tiles(shape[other], warps);
    return blocked(share, 1, bytes)
        .crop(share)
        .repeat(Resource::Warp, warps, static_cast<int>(other))
        .crop(shape);
  }
  return blocked(shape, warps, bytes);
}

Layout one_owner(const Coordinate& extents, int64_t warps) {
  const Layout plain = blocked(extents, warps, kWidest);
  if (plain.is_injective() || extents.empty()) return plain;
  const int last = static_cast<int>(extents.size()) - 1;
  return fitted(
      Layout(last + 1).repeat(Resource::Lane, kLanes, last).repeat(Resource::Warp, warps, 0),
      extents);
}

}  // namespace kiln::layouts
