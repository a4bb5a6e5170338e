// Rules of tiles, views, and of what moves elements.
#include <fmt/format.h>

#include <algorithm>

#include "ir/verify_impl.h"

namespace kiln {
namespace {

constexpr int64_t kMostTileElements = int64_t{1} << 24;
constexpr int64_t kMostShared = int64_t{1} << 24;  // bytes; no GPU has as much

void check_alloc(const Law& law, const Op& op) {
  const Type& type = law.type(op.result);
  if (type.space != Space::Shared && type.space != Space::Fragment)
    law.fail(op, fmt::format("expected a shared tile or a fragment, got {}", str(type)));
  require_tile_extents(law, op);
  require_place(law, op, "offset");
  law.require_layout(op, type.shape, type.space);
}

// A size above the extent can be right only if it sticks out at both ends: never meant.
void check_slice_axis(const Law& law, const Op& op, const Type& base, const Type& view, int axis) {
  const size_t at = static_cast<size_t>(axis);
  const int64_t size = view.shape[at], extent = base.shape[at];
  if (size < 1 && size != kDynamic)
    law.fail(op, fmt::format("axis {}: expected a size of 1 or more, got {}", axis, size));
  if (law.stage != IrStage::Traced || extent == kDynamic) return;
  auto index = constant_int(law.kernel, op.operands[at + 1]);
  const int64_t first = index.value_or(0), end = size == kDynamic ? first : first + size;
  if (first < 0 || end > extent)
    law.fail(op,
             fmt::format("axis {}: slice [{}, {}) exceeds extent {} of {}", axis, first,
                         size == kDynamic ? extent : end, extent, str(base)),
             "constant slices lie inside; let a dynamic index reach over the end");
}

void check_slice(const Law& law, const Op& op) {
  const Type& base = law.type(op.operands[0]);
  const Type& view = law.type(op.result);
  if (view.space != base.space || view.dtype != base.dtype || view.rank() != base.rank())
    law.fail(op, fmt::format("expected a view of the space, dtype and rank of {}, got {}",
                             str(base), str(view)));
  law.require_index(op, 1, base);
  for (int axis = 0; axis < base.rank(); ++axis) check_slice_axis(law, op, base, view, axis);
}

void require_static(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  if (!is_static(type.shape))
    law.fail(
        op,
        fmt::format("{}: expected constant extents, got {}", operand_name(op, operand), str(type)),
        "slice it to the extents of a tile");
}

void check_copy(const Law& law, const Op& op) {
  require_copy_shapes(law, op);
  const Type& from = law.type(op.operands[0]);
  const double pad = op.real("pad");
  const Scalar stored = convert(Scalar::of_float(F64, pad), from.dtype);
  const double back = convert(stored, F64).f;
  if (back != pad && !(back != back && pad != pad))
    law.fail(op, fmt::format("pad: expected a value of {}, got {}", name(from.dtype), pad));
}

void check_convert(const Law& law, const Op& op) {
  const Type &from = law.type(op.operands[0]), &to = law.type(op.operands[1]);
  if (from.space != Space::Fragment || from != to)
    law.fail(op, fmt::format("expected fragments of one type, got {} and {}", str(from), str(to)));
}

// A fragment inside a parallel: each thread reaches its own elements only.
void check_owned(const Law& law, const Op& op, const Type& fragment, size_t first, bool store) {
  const std::vector<Value>& own = law.kernel.region(law.parallel->regions[0]).args;
  const Shape& extents = law.parallel->ints("extents");
  const std::string hint =
      "a fragment is owned by the loop's threads: index it by the loop's own indices; go through a "
      "shared tile for anything else";
  std::vector<bool> used(own.size(), false);
  for (size_t axis = 0; axis < fragment.shape.size(); ++axis) {
    Value index = op.operands[first + axis];
    auto found = std::find(own.begin(), own.end(), index);
    if (found == own.end()) {
      if (fragment.shape[axis] == 1 && constant_int(law.kernel, index) == 0) continue;
      law.fail(op,
               fmt::format("axis {} of {} is not indexed by an index of the parallel", axis,
                           str(fragment)),
               hint);
    }
    const size_t which = static_cast<size_t>(found - own.begin());
    if (used[which])
      law.fail(op,
               fmt::format("{} is indexed twice by the same index of the parallel", str(fragment)),
               hint);
    used[which] = true;
    if (store && extents[which] != fragment.shape[axis])
      law.fail(op,
               fmt::format("axis {} of {} is indexed by an index of extent {}", axis, str(fragment),
                           extents[which]),
               "a fragment that is stored to has the loop's extents");
  }
  for (size_t which = 0; store && which < own.size(); ++which)
    if (!used[which] && extents[which] != 1)
      law.fail(op,
               fmt::format("index {} of the parallel does not index {}, so its iterations "
                           "would all write one element",
                           which, str(fragment)),
               "use reduce to combine elements");
}

void check_element(const Law& law, const Op& op, size_t base_operand) {
  const Type& base = law.type(op.operands[base_operand]);
  law.require_index(op, base_operand + 1, base);
  if (base.space != Space::Fragment) return;
  if (base.kind == Kind::View)
    law.fail(op, fmt::format("an element of a slice of a fragment ({})", str(base)),
             "index the fragment itself");
  if (law.parallel)
    check_owned(law, op, base, base_operand + 1, op.code == OpCode::Store);
  else if (base.rank() > 0)
    law.fail(op, fmt::format("an element of {} outside a parallel", str(base)),
             "use parallel, or a shared tile");
}

}  // namespace

void require_tile_extents(const Law& law, const Op& op) {
  const Type& type = law.type(op.result);
  int64_t elements = 1;
  for (int64_t extent : type.shape) {
    if (extent < 1)
      law.fail(op, fmt::format("expected positive constant extents, got {}", str(type)),
               "the shape of a tile is known when the kernel is built");
    if (extent > kMostTileElements / elements)
      law.fail(op,
               fmt::format("expected at most {} elements, got {}", kMostTileElements, str(type)));
    elements *= extent;
  }
}

void require_place(const Law& law, const Op& op, const char* attribute) {
  const int64_t at = op.integer(attribute);
  if (at != kNoPlace && (at < 0 || at > kMostShared))
    law.fail(op, fmt::format("{}: expected 0 to {}, got {}", attribute, kMostShared, at));
}

void require_copy_shapes(const Law& law, const Op& op) {
  require_static(law, op, 0);
  require_static(law, op, 1);
  const Type &from = law.type(op.operands[0]), &to = law.type(op.operands[1]);
  if (without_units(from.shape) != without_units(to.shape))
    law.fail(
        op,
        fmt::format("shapes differ: the source is {}, the destination {}", brief(from), brief(to)),
        "shapes agree once extents of 1 are dropped");
}

void check_storage(const Law& law, const Op& op) {
  switch (op.code) {
    case OpCode::Alloc: return check_alloc(law, op);
    case OpCode::Slice: return check_slice(law, op);
    case OpCode::Copy: return check_copy(law, op);
    case OpCode::Fill: return require_static(law, op, 1);
    case OpCode::Convert: return check_convert(law, op);
    case OpCode::Barrier:
    case OpCode::WaitCopies: return;
    case OpCode::Store: return check_element(law, op, 1);
    default: break;
  }
  check_element(law, op, 0);
  if (law.type(op.result).dtype != law.type(op.operands[0]).dtype)
    law.fail(op,
             fmt::format("the result: expected {}, got {}", name(law.type(op.operands[0]).dtype),
                         str(law.type(op.result))),
             "cast it after loading");
}

}  // namespace kiln
