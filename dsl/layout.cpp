#include "dsl/layout.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "ir/layout/text.h"
#include "ir/layout/tile_layout.h"

namespace kiln {
inline namespace dsl {
namespace {

constexpr int panel_of(SharedLayout layout) {
  return layout == Swizzled32 ? 32 : layout == Swizzled64 ? 64 : 128;
}

[[noreturn]] void refuse(const std::string& text, const std::string& hint, Loc loc) {
  throw UserError(loc, "annotate_layout: " + text, hint);
}

// The alloc of a whole tile that has no layout yet.
Op& tile_op(const Storage& tile, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  const Value value = tracer.use(tile.traced(), loc);
  const Type& type = tile.type();
  Kernel& kernel = tracer.inside_launch(loc, "annotate_layout").kernel();
  if (type.space == Space::Global)
    refuse(fmt::format("expected a tile, got {}", str(type)),
           "a tensor lies as its caller's strides say", loc);
  if (!kernel.def_as(value, OpCode::Alloc))
    refuse(fmt::format("expected a whole tile, got {}", str(type)), "annotate the tile itself",
           loc);
  if (type.space == Space::Local)
    refuse(fmt::format("expected a shared tile or a fragment, got {}", str(type)),
           "a local tile lies as the compiler finds best", loc);
  Op& alloc = kernel.op(kernel.def(value));
  if (alloc.attrs.find("layout"))
    refuse(fmt::format("{} of line {} has a layout already", str(type), alloc.loc.line),
           "annotate a tile once", loc);
  return alloc;
}

void annotate(Op& alloc, const Type& type, const Layout& layout, Loc loc) {
  if (const std::string misfit = layout_misfit(layout, type.shape, type.space); !misfit.empty())
    refuse(fmt::format("{}: {}", str(type), misfit),
           type.space == Space::Shared
               ? "RowMajor, Swizzled32, Swizzled64, Swizzled128, row_major or swizzled of its shape"
               : "blocked, replicated or mma_accumulator of its shape and the launch's warps",
           loc);
  set_layout(alloc, layout);
}

}  // namespace

void annotate_layout(const Storage& tile, SharedLayout layout, Loc loc) {
  Op& alloc = tile_op(tile, loc);
  const Type& type = tile.type();
  if (type.space != Space::Shared)
    refuse(fmt::format("expected a shared tile, got {}", str(type)),
           "a fragment takes a Layout: blocked, replicated or mma_accumulator, for example", loc);
  if (layout == RowMajor) return annotate(alloc, type, row_major(type.shape), loc);
  if (type.rank() < 2)
    refuse(fmt::format("expected a tile with rows and columns to swizzle, got {}", str(type)),
           "RowMajor", loc);
  annotate(alloc, type,
           swizzled(type.shape, static_cast<int>(size_of(type.dtype)), panel_of(layout)), loc);
}

void annotate_layout(const Storage& tile, const Layout& layout, Loc loc) {
  annotate(tile_op(tile, loc), tile.type(), layout, loc);
}

void annotate_layout(const Storage& tile, const std::string& text, Loc loc) {
  Op& alloc = tile_op(tile, loc);
  try {
    annotate(alloc, tile.type(), parse_layout(text), loc);
  } catch (const UserError& error) {
    if (error.loc().known()) throw;
    refuse(error.message(), "the form is described in ir/layout/text.h", loc);
  }
}

}  // namespace dsl
}  // namespace kiln
