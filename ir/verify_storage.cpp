// Rules of tiles, views, and of what moves elements.
#include <fmt/format.h>

#include <algorithm>

#include "ir/dtype_rules.h"
#include "ir/verify_impl.h"

namespace kiln {
namespace {

constexpr int64_t kMostTileElements = int64_t{1} << 24;
constexpr int64_t kMostShared = int64_t{1} << 24;  // bytes; no GPU has as much
constexpr int64_t kMostLocal = 64;                 // elements: each becomes a register
constexpr int kMostLocalAxes = 4;

void check_local(const Law& law, const Op& op) {
  const Type& type = law.type(op.result);
  require_tile_extents(law, op);
  if (type.rank() < 1 || type.rank() > kMostLocalAxes || count(type.shape) > kMostLocal)
    law.fail(op,
             fmt::format("a local array: expected 1 to {} axes and at most {} elements, got {}",
                         kMostLocalAxes, kMostLocal, str(type)),
             "a shared tile holds more");
  for (const char* attribute : {"layout", "offset"})
    if (op.attrs.find(attribute))
      law.fail(op, fmt::format("a local array has no {}", attribute), "leave it out");
}

void check_alloc(const Law& law, const Op& op) {
  const Type& type = law.type(op.result);
  if (type.space == Space::Local) return check_local(law, op);
  if (type.space != Space::Shared && type.space != Space::Fragment)
    law.fail(op, fmt::format("expected a shared tile or a fragment, got {}", str(type)),
             "global memory is declared as a tensor");
  require_tile_extents(law, op);
  require_place(law, op, "offset");
  law.require_layout(op, type.shape, type.space);
}

int64_t bytes_of(const Type& type) {
  return count(type.shape) * static_cast<int64_t>(size_of(type.dtype));
}

void check_reshape(const Law& law, const Op& op) {
  const Type &base = law.type(op.operands[0]), &made = law.type(op.result);
  const auto expect = [&](bool holds, const char* hint) {
    if (!holds)
      law.fail(op, fmt::format("expected a shared tile, all of it, got {}", str(base)), hint);
  };
  expect(base.space != Space::Global, "declare the tensor with that shape and dtype");
  expect(base.space != Space::Fragment,
         "threads have its elements in registers: copy it to a shared tile, and reshape that");
  expect(base.kind != Kind::View, "reshape the whole tile, then take the part");
  expect(law.kernel.def_as(base_of(law.kernel, op.operands[0]), OpCode::Alloc),
         "copy the slot to a tile of your own");
  require_tile_extents(law, op);
  if (made.space != Space::Shared)
    law.fail(op, fmt::format("the result: expected a shared tile, got {}", str(made)),
             "the bytes stay where they are");
  if (base.dtype == Bool || made.dtype == Bool)
    law.fail(op, fmt::format("from {} to {}: bools have no bits to share", str(base), str(made)),
             "keep them as u8 that are 0 or 1, and compare with 0");
  if (bytes_of(base) != bytes_of(made))
    law.fail(op,
             fmt::format("sizes differ: {} has {} bytes, {} has {}", str(base), bytes_of(base),
                         str(made), bytes_of(made)),
             "take a part of the larger one instead");
}

// A size above the extent can be right only if it sticks out at both ends: never meant.
void check_slice_axis(const Law& law, const Op& op, const Type& base, const Type& view, int axis) {
  const size_t at = static_cast<size_t>(axis);
  const int lacking = base.rank() - view.rank();
  const int64_t size = axis < lacking ? 1 : view.shape[static_cast<size_t>(axis - lacking)];
  const int64_t extent = base.shape[at];
  if (size < 1 && size != kDynamic)
    law.fail(op, fmt::format("axis {}: expected a size of 1 or more, got {}", axis, size),
             "? for all that is left of the axis");
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
  const bool may_lack = base.kind == Kind::Tile && base.space == Space::Shared && view.rank() > 0;
  const bool right_rank = view.rank() == base.rank() || (may_lack && view.rank() < base.rank());
  if (view.space != base.space || view.dtype != base.dtype || !right_rank)
    law.fail(op,
             fmt::format("expected a view of the space, dtype and rank of {}, got {}", str(base),
                         str(view)),
             "a slice differs from its base in extents only");
  law.require_index(op, 1, base);
  for (int axis = 0; axis < base.rank(); ++axis) check_slice_axis(law, op, base, view, axis);
}

void check_every(const Law& law, const Op& op) {
  const Type& base = law.type(op.operands[0]);
  const int64_t axis = op.integer("axis"), step = op.integer("step");
  if (base.kind != Kind::Tensor)
    law.fail(op, fmt::format("base: expected a tensor, got {}", str(base)),
             "take every n-th of the tensor, then a part of that");
  if (axis < 0 || axis >= base.rank() - 1)
    law.fail(op, fmt::format("axis: expected one of {} but the last, got {}", str(base), axis),
             "elements of the last axis lie side by side");
  constexpr int64_t kMostStep = 1 << 20;  // so that no distance leaves 64 bits
  if (step < 1 || step > kMostStep)
    law.fail(op, fmt::format("step: expected 1 to {}, got {}", kMostStep, step));
  for (size_t i : {1, 2})
    if (law.type(op.operands[i]).dtype != I32)
      law.fail(op, fmt::format("{}: expected i32, got {}", operand_name(op, i),
                               str(law.type(op.operands[i]))));
  Shape shape = base.shape;
  shape[static_cast<size_t>(axis)] = kDynamic;
  const Type expected = Type::view(base.space, base.dtype, std::move(shape));
  if (law.type(op.result) != expected)
    law.fail(op, fmt::format("the result: expected {}, got {}", str(expected),
                             str(law.type(op.result))));
}

void require_static(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  if (!is_static(type.shape))
    law.fail(
        op,
        fmt::format("{}: expected constant extents, got {}", operand_name(op, operand), str(type)),
        "slice it to the extents of a tile");
}

void require_pad(const Law& law, const Op& op) {
  const Type& from = law.type(op.operands[0]);
  const double pad = op.real("pad");
  const Scalar stored = convert(Scalar::of_float(F64, pad), from.dtype);
  const double back = convert(stored, F64).f;
  if (back != pad && !(back != back && pad != pad))
    law.fail(op, fmt::format("pad: expected a value of {}, got {}", name(from.dtype), pad),
             is_float(from.dtype) ? fmt::format("the nearest is {}", round_to(from.dtype, pad))
                                  : "a whole number that the source's dtype holds");
}

void check_copy(const Law& law, const Op& op) {
  if (op.word("group") == "next" && law.type(op.operands[1]).space != Space::Shared)
    law.fail(op, "group: expected a shared destination, got " + str(law.type(op.operands[1])),
             "only shared tiles are slots of rings");
  require_copy_shapes(law, op);
  require_pad(law, op);
}

void check_convert(const Law& law, const Op& op) {
  const Type &from = law.type(op.operands[0]), &to = law.type(op.operands[1]);
  if (from.space != Space::Fragment || from != to)
    law.fail(op, fmt::format("expected fragments of one type, got {} and {}", str(from), str(to)),
             "copy converts");
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
  if (base.space == Space::Local && op.code == OpCode::Store && law.parallel) {
    const std::vector<OpId>& own = law.kernel.region(law.parallel->regions[0]).ops;
    const OpId alloc = law.kernel.def(op.operands[base_operand]);
    if (std::find(own.begin(), own.end(), alloc) == own.end())
      law.fail(op, fmt::format("writes the block's {} inside a parallel", str(base)),
               "an array made inside the parallel is each point's own; points share shared tiles");
  }
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

// `many` is a tile of rows, `all` what `rows` picks from or puts into.
void check_rows(const Law& law, const Op& op, size_t all, size_t many) {
  const Type &picked = law.type(op.operands[many]), &from = law.type(op.operands[all]),
             &rows = law.type(op.operands[1]);
  require_static(law, op, many);
  require_static(law, op, 1);
  if (from.space == Space::Fragment)
    law.fail(op,
             fmt::format("{}: expected a tensor or shared tile, got {}", operand_name(op, all),
                         str(from)),
             "a thread has its own elements of a fragment only: copy it to a shared tile");
  const int64_t count = picked.rank() > 0 ? picked.shape[0] : 0;
  const bool in_line = without_units(rows.shape).size() <= 1 && kiln::count(rows.shape) == count;
  const bool whole = rows.kind == Kind::Tile && rows.rank() == 1;
  if (rows.dtype != I32 || !in_line || rows.space == Space::Global ||
      (rows.space == Space::Fragment && !whole))
    law.fail(op,
             fmt::format("'rows': expected a tile of {} i32, one a row of {}, got {}", count,
                         operand_name(op, many), str(rows)),
             rows.space == Space::Global ? "copy them to a tile first, with pad -1"
                                         : "a shared tile, or a fragment of one axis");
  const int extra = from.rank() - picked.rank();
  bool fits = count > 0 && extra >= 0;
  for (int axis = 0; fits && axis < from.rank(); ++axis) {
    const int64_t extent = from.shape[static_cast<size_t>(axis)];
    if (axis < extra) fits = extent == 1;
    if (axis > extra) fits = extent == picked.shape[static_cast<size_t>(axis - extra)];
  }
  if (!fits)
    law.fail(
        op,
        fmt::format("shapes differ: {} is {}, {} is {}", operand_name(op, many), brief(picked),
                    operand_name(op, all), brief(from)),
        "all but the first axis of the rows agree; in front of those the other has extents of 1");
}

void check_gather(const Law& law, const Op& op) {
  check_rows(law, op, 0, 2);
  require_pad(law, op);
}

// Of the base, whose dtype the result has: checked as a load's.
void check_atomic(const Law& law, const Op& op) {
  const Type& base = law.type(op.operands[1]);
  if (base.space == Space::Fragment)
    law.fail(op, fmt::format("expected a tensor or shared tile, got {}", str(base)),
             "an element of a fragment has one thread: store to it, or combine them with reduce");
  law.require_index(op, 2, base);
  const DType dtype = base.dtype;
  const std::string& kind = op.word("kind");
  const auto takes = [&](DType other) { return atomic_takes(kind, other); };
  if (!takes(dtype))
    law.fail(op, fmt::format("{}: expected {}, got {}", kind, dtypes_text(takes), name(dtype)),
             "accumulate in one of these and convert with copy");
  const Type& value = law.type(op.operands[0]);
  if (value.dtype != dtype)
    law.fail(op, fmt::format("'value': expected {}, got {}", name(dtype), str(value)), "cast it");
  const Op* tensor = law.kernel.def_as(base_of(law.kernel, op.operands[1]), OpCode::Tensor);
  if (tensor && tensor->word("role") == "output")
    law.fail(op, fmt::format("reads '{}', which is an output", tensor->word("name")),
             "declare it inout or workspace");
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
               fmt::format("expected at most {} elements, got {}", kMostTileElements, str(type)),
               "smaller tiles, in a loop over their parts");
    elements *= extent;
  }
}

void require_place(const Law& law, const Op& op, const char* attribute) {
  const int64_t at = op.integer(attribute);
  if (at != kNoPlace && (at < 0 || at > kMostShared))
    law.fail(op, fmt::format("{}: expected 0 to {}, got {}", attribute, kMostShared, at),
             "bytes from the start of the block's shared memory");
}

void require_copy_shapes(const Law& law, const Op& op) {
  require_static(law, op, 0);
  require_static(law, op, 1);
  const Type &from = law.type(op.operands[0]), &to = law.type(op.operands[1]);
  const Shape a = without_units(from.shape), b = without_units(to.shape);
  if (a == b) return;
  law.fail(
      op,
      fmt::format("shapes differ: the source is {}, the destination {}", brief(from), brief(to)),
      a == Shape(b.rbegin(), b.rend())
          ? "a copy does not transpose: copy to a shared tile and read that the other way in a "
            "parallel"
          : "shapes agree once extents of 1 are dropped");
}

void check_storage(const Law& law, const Op& op) {
  switch (op.code) {
    case OpCode::Alloc: return check_alloc(law, op);
    case OpCode::Reshape: return check_reshape(law, op);
    case OpCode::Slice: return check_slice(law, op);
    case OpCode::Every: return check_every(law, op);
    case OpCode::Copy: return check_copy(law, op);
    case OpCode::Fill: return require_static(law, op, 1);
    case OpCode::Convert: return check_convert(law, op);
    case OpCode::Barrier:
    case OpCode::WaitCopies:
    case OpCode::CommitCopies: return;
    case OpCode::Store: return check_element(law, op, 1);
    case OpCode::Gather: return check_gather(law, op);
    case OpCode::Scatter: return check_rows(law, op, 2, 0);
    case OpCode::Watch: return require_static(law, op, 0);
    default: break;
  }
  const bool atomic = op.code == OpCode::Atomic;
  atomic ? check_atomic(law, op) : check_element(law, op, 0);
  const DType expected = law.type(op.operands[atomic ? 1 : 0]).dtype;
  if (law.type(op.result).dtype != expected)
    law.fail(
        op,
        fmt::format("the result: expected {}, got {}", name(expected), str(law.type(op.result))),
        "cast it after loading");
}

}  // namespace kiln
