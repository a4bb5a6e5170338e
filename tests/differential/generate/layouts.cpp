// Layouts that programs wish for their tiles: those that the compiler knows, and odd ones.
#include "ir/layout/fragments.h"
#include "ir/layout/shared.h"
#include "ir/layout/tile_layout.h"
#include "tests/differential/generate/body.h"

namespace kiln::differential {
namespace {

Layout column_major(const Shape& shape) {
  Layout layout(static_cast<int>(shape.size()));
  for (size_t axis = 0; axis < shape.size(); ++axis)
    layout = layout.repeat(Resource::Offset, shape[axis], static_cast<int>(axis));
  return layout;
}

Layout any_shared(Random& random, const Shape& shape, int bytes) {
  const int panel = shape.size() < 2 ? 0 : panel_bytes(shape.back(), bytes);
  switch (random.between(0, 4)) {
    case 0: return row_major(shape);
    case 1: return row_major(shape, shape.back() + random.between(1, 9));
    case 2: return column_major(shape);
    case 3: return panel > 0 ? swizzled(shape, bytes, panel) : row_major(shape);
    default: return shared_tile(shape, bytes);
  }
}

// Of whole lanes and warps: along axes at random.
Layout any_fragment(Random& random, const Shape& shape, int64_t warps) {
  switch (random.between(0, 4)) {
    case 0: return blocked(shape, warps, 4);
    case 1:
      if (count(shape) <= 64) return replicated(shape, warps);
      break;
    case 2:
      if (shape.size() == 2) return mma_accumulator(shape[0], shape[1], {warps, 1, 1});
      break;
    default: break;
  }
  const auto rank = static_cast<int>(shape.size());
  const auto axis = [&] { return static_cast<int>(random.between(0, rank - 1)); };
  Layout layout(rank);
  for (int bit = 0; bit < 5; ++bit) layout = layout.repeat(Resource::Lane, 2, axis());
  layout = layout.repeat(Resource::Warp, warps, axis());
  for (int a = 0; a < rank; ++a) {
    const int64_t covered = layout.padded_shape()[static_cast<size_t>(a)];
    const int64_t extent = shape[static_cast<size_t>(a)];
    layout = layout.repeat(Resource::Reg, (extent + covered - 1) / covered, a);
  }
  return layout.crop(shape);
}

}  // namespace

void Body::wish_layout(Value tile) {
  const Type type = builder_.kernel().type(tile);
  if (type.shape.empty() || type.space == Space::Local) return;
  const Layout layout = type.space == Space::Shared
                            ? any_shared(random_, type.shape, static_cast<int>(size_of(type.dtype)))
                            : any_fragment(random_, type.shape, random_.pick({1, 2, 4, 4, 8}));
  set_layout(builder_.kernel().op(builder_.kernel().def(tile)), layout);
}

}  // namespace kiln::differential
