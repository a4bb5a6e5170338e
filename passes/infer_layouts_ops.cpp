// Gemms and reductions, which want their operands in certain layouts.
#include "ir/layout/fragments.h"
#include "ir/layout/reshape.h"
#include "ir/layout/shared.h"
#include "passes/gemm_plan.h"
#include "passes/infer_layouts_impl.h"

namespace kiln::layouts {
namespace {

void append(Tiles& tiles, Builder& build, OpId op) {
  tiles.kernel.region(build.region()).ops.push_back(op);
}

Value in_shared(Tiles& tiles, Builder& build, Value fragment) {
  const Type type = tiles.kernel.type(fragment);
  Value other = tiles.shared(build, type.dtype, type.shape);
  tiles.copy(build, fragment, other);
  return other;
}

// The fragment in the layout, itself or converted, or where that takes shared memory, a shared
// tile.
Value operand_in(Tiles& tiles, Builder& build, Value fragment, const Layout& wanted) {
  const Ref layout = tiles.at(fragment);
  if (*layout == wanted) return fragment;
  const Type type = tiles.kernel.type(fragment);
  const int bytes = static_cast<int>(size_of(type.dtype));
  if (!tiles.pool.in_registers(layout, tiles.pool(wanted), bytes))
    return in_shared(tiles, build, fragment);
  Value other = tiles.fragment(build, type.dtype, type.shape, wanted);
  tiles.move(build, fragment, other);
  return other;
}

// A fragment in the layout that the op updates instead of `tile`, itself if it is in that layout.
// `reads`: with the values that the tile has.
Value updated_in(Tiles& tiles, Builder& build, Value tile, const Layout& wanted, bool reads) {
  const bool is_fragment = tiles.is_fragment(tile);
  if (is_fragment && *tiles.at(tile) == wanted) return tile;
  const Type type = tiles.kernel.type(tile);
  Value other = tiles.fragment(build, type.dtype, type.shape, wanted);
  if (reads) is_fragment ? tiles.move(build, tile, other) : tiles.copy(build, tile, other);
  return other;
}

void put_back(Tiles& tiles, Builder& build, Value other, Value tile) {
  if (other == tile) return;
  tiles.is_fragment(tile) ? tiles.move(build, other, tile) : tiles.copy(build, other, tile);
}

// The source as a fragment that can be reduced along `dim`.
Value reducible(Tiles& tiles, Builder& build, Value source, int dim) {
  const Type type = tiles.kernel.type(source);
  const bool is_fragment = tiles.is_fragment(source);
  if (is_fragment && plan_reduction(*tiles.at(source), dim)) return source;
  const Layout lines =
      whole_lines(type.shape, dim, tiles.warps, static_cast<int>(size_of(type.dtype)));
  Value other = tiles.fragment(build, type.dtype, type.shape, lines);
  is_fragment ? tiles.move(build, source, other) : tiles.copy(build, source, other);
  return other;
}

// Of partial results: floats are rounded to the destination's dtype once, at the end.
DType partial_type(DType source, DType destination) {
  if (!is_float(source)) return source;
  return source == F64 || destination == F64 ? F64 : F32;
}

}  // namespace

std::optional<Layout> reduced(const Layout& source, int64_t dim, bool keeps_axis) {
  const auto plan = plan_reduction(source, static_cast<int>(dim));
  if (!plan) return std::nullopt;
  return keeps_axis ? insert_axis(plan->result, static_cast<int>(dim)) : plan->result;
}

void legalise_gemm(Tiles& tiles, Builder& build, OpId id) {
  Kernel& kernel = tiles.kernel;
  const GemmPlan plan = gemm_plan(kernel, kernel.op(id), tiles.warps);
  std::vector<Value> operands = kernel.op(id).operands;
  const Layout* const wanted[] = {&plan.a, &plan.b};
  for (size_t i = 0; i < 2; ++i)
    if (tiles.is_fragment(operands[i]))
      operands[i] = plan.mma ? operand_in(tiles, build, operands[i], *wanted[i])
                             : in_shared(tiles, build, operands[i]);
  const Value c = operands[2];
  operands[2] = updated_in(tiles, build, c, plan.c, !kernel.op(id).flag("clear"));
  kernel.op(id).operands = operands;
  append(tiles, build, id);
  put_back(tiles, build, operands[2], c);
}

void legalise_reduce(Tiles& tiles, Builder& build, OpId id) {
  Kernel& kernel = tiles.kernel;
  const int64_t dim = kernel.op(id).integer("dim");
  const Value result = kernel.op(id).operands[1];
  const Type type = kernel.type(result);
  const Value source = reducible(tiles, build, kernel.op(id).operands[0], static_cast<int>(dim));
  const bool keeps = kernel.type(source).rank() == type.rank();
  const Layout layout = *reduced(*tiles.at(source), dim, keeps);
  const Value other = updated_in(tiles, build, result, layout, !kernel.op(id).flag("clear"));

  std::vector<Value> operands{source, other};
  const int64_t parts = plan_reduction(*tiles.at(source), static_cast<int>(dim))->parts;
  if (parts > 1) {
    Shape shape = type.shape;
    shape.insert(shape.begin(), parts);
    operands.push_back(tiles.shared(build, partial_type(kernel.type(source).dtype, type.dtype),
                                    shape, row_major(shape)));
  }
  kernel.op(id).operands = std::move(operands);
  append(tiles, build, id);
  put_back(tiles, build, other, result);
}

}  // namespace kiln::layouts
