#include "dsl/tile_ops.h"

#include <fmt/format.h>

#include <string>

#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

// An axis, counted from the start.
int64_t axis_of(const Storage& source, int dim, const std::string& function, Loc loc) {
  int rank = source.type().rank();
  if (dim < -rank || dim >= rank)
    throw UserError(loc, fmt::format("{}: dim {} of {}", function, dim, str(source.type())),
                    fmt::format("{} to {}", -rank, rank - 1));
  return dim < 0 ? dim + rank : dim;
}

void reduce(const char* kind, const Storage& source, const Storage& destination, int dim,
            bool clear, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value from = tracer.use(source.traced(), loc), to = tracer.use(destination.traced(), loc);
  Attrs attrs;
  attrs.set("kind", std::string(kind));
  attrs.set("dim", axis_of(source, dim, fmt::format("reduce_{}", kind), loc));
  attrs.set("clear", clear);
  tracer.emit(OpCode::Reduce, {from, to}, std::move(attrs), loc);
}

void arg_reduce(const char* kind, const Storage& source, const Storage& index, int dim, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value from = tracer.use(source.traced(), loc), to = tracer.use(index.traced(), loc);
  Attrs attrs;
  attrs.set("kind", std::string(kind));
  attrs.set("dim", axis_of(source, dim, fmt::format("reduce_arg{}", kind), loc));
  tracer.emit(OpCode::ArgReduce, {from, to}, std::move(attrs), loc);
}

// `values` may be null: `order` then gets positions.
void first_of(const char* function, const Storage& keys, const Storage* values,
              const Storage& sorted, const Storage& order, int dim, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  std::vector<Value> operands;
  for (const Storage* storage : {&keys, &order, &sorted})
    operands.push_back(tracer.use(storage->traced(), loc));
  if (values) operands.push_back(tracer.use(values->traced(), loc));
  Attrs attrs;
  attrs.set("dim", axis_of(keys, dim, function, loc));
  tracer.emit(OpCode::Sort, std::move(operands), std::move(attrs), loc);
}

void sort(const Storage& keys, const Storage* values, const Storage& sorted, const Storage& order,
          int dim, Loc loc) {
  if (order.shape() != keys.shape())
    throw UserError(loc,
                    fmt::format("sort: expected results of shape {}, as the keys are, got {}",
                                str(keys.shape()), str(order.shape())),
                    "use topk for the first few");
  first_of("sort", keys, values, sorted, order, dim, loc);
}

const char* word(GemmPolicy policy) {
  switch (policy) {
    case FullRow: return "full_row";
    case FullCol: return "full_col";
    default: return "square";
  }
}

}  // namespace

void copy(const Storage& source, const Storage& destination, CopyOptions options, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value from = tracer.use(source.traced(), loc), to = tracer.use(destination.traced(), loc);
  Attrs attrs;
  attrs.set("pad", options.pad);
  tracer.emit(OpCode::Copy, {from, to}, std::move(attrs), loc);
}

void gather(const Storage& source, const Storage& rows, const Storage& destination,
            GatherOptions options, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value from = tracer.use(source.traced(), loc), index = tracer.use(rows.traced(), loc),
        to = tracer.use(destination.traced(), loc);
  Attrs attrs;
  attrs.set("pad", options.pad);
  tracer.emit(OpCode::Gather, {from, index, to}, std::move(attrs), loc);
}

void scatter(const Storage& source, const Storage& rows, const Storage& destination, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value from = tracer.use(source.traced(), loc), index = tracer.use(rows.traced(), loc),
        to = tracer.use(destination.traced(), loc);
  tracer.emit(OpCode::Scatter, {from, index, to}, {}, loc);
}

void device_assert(Arg condition, const std::string& text, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  if (condition.is_boolean()) {
    if (condition.integer()) return;
    throw UserError(loc, "device_assert: " + (text.empty() ? "the condition is false" : text),
                    "the condition is a C++ bool, false when the kernel is built");
  }
  tracer.inside_launch(loc, "device_assert");
  if (condition.dtype() != Bool)
    throw UserError(loc,
                    fmt::format("device_assert: expected a bool, got {}", condition.describe()),
                    "compare it: device_assert(x != 0)");
  Attrs attrs;
  attrs.set("text", text);
  tracer.emit(OpCode::DeviceAssert, {condition.as(Bool, "device_assert")}, std::move(attrs), loc);
}

void watch(const Storage& tile, const std::string& text, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Attrs attrs;
  attrs.set("text", text);
  tracer.emit(OpCode::Watch, {tracer.use(tile.traced(), loc)}, std::move(attrs), loc);
}

View every(const Tensor& tensor, int axis, int step, const Arg& first, const Arg& end, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.inside_launch(loc, "every");
  Value base = tracer.use(tensor.traced(), loc);
  const int axes = tensor.type().rank();
  if (axis < 0 || axis >= axes - 1)
    throw UserError(loc, fmt::format("every: axis: expected 0 to {}, got {}", axes - 2, axis),
                    "any axis but the last, whose elements lie side by side");
  if (step < 1)
    throw UserError(loc, fmt::format("every: step: expected 1 or more, got {}", step),
                    "1 takes them all");
  const Value begin = first.index("every: first"), bound = end.index("every: end");
  builder.loc = loc;
  return View(builder.every(base, axis, step, begin, bound), loc);
}

Tile view(const Storage& tile, const std::vector<Arg>& extents, DType dtype, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.inside_launch(loc, "reshape");
  Value base = tracer.use(tile.traced(), loc);
  Shape shape = static_shape(extents, "reshape");
  builder.loc = loc;
  return Tile(builder.reshape(base, dtype, std::move(shape)), loc);
}

Tile reshape(const Storage& tile, const std::vector<Arg>& extents, Loc loc) {
  return view(tile, extents, tile.dtype(), loc);
}

void fill(const Storage& destination, Arg value, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value to = tracer.use(destination.traced(), loc);
  Value with = value.stored_as(destination.dtype(), "fill");
  tracer.emit(OpCode::Fill, {with, to}, {}, loc);
}

void clear(const Storage& destination, Loc loc) {
  bool is_bool = destination.dtype() == Bool;
  fill(destination, is_bool ? Arg(false, loc) : Arg(0, loc), loc);
}

void gemm(const Storage& a, const Storage& b, const Storage& c, GemmOptions options, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  std::vector<Value> operands;
  for (const Storage* storage : {&a, &b, &c})
    operands.push_back(tracer.use(storage->traced(), loc));
  Attrs attrs;
  attrs.set("transpose_a", options.transpose_a);
  attrs.set("transpose_b", options.transpose_b);
  attrs.set("clear", options.clear);
  attrs.set("policy", std::string(word(options.policy)));
  tracer.emit(OpCode::Gemm, std::move(operands), std::move(attrs), loc);
}

void reduce_max(const Storage& source, const Storage& destination, int dim, bool clear, Loc loc) {
  reduce("max", source, destination, dim, clear, loc);
}
void reduce_min(const Storage& source, const Storage& destination, int dim, bool clear, Loc loc) {
  reduce("min", source, destination, dim, clear, loc);
}
void reduce_sum(const Storage& source, const Storage& destination, int dim, bool clear, Loc loc) {
  reduce("sum", source, destination, dim, clear, loc);
}
void reduce_absmax(const Storage& source, const Storage& destination, int dim, bool clear,
                   Loc loc) {
  reduce("absmax", source, destination, dim, clear, loc);
}
void reduce_and(const Storage& source, const Storage& destination, int dim, bool clear, Loc loc) {
  reduce("and", source, destination, dim, clear, loc);
}
void reduce_or(const Storage& source, const Storage& destination, int dim, bool clear, Loc loc) {
  reduce("or", source, destination, dim, clear, loc);
}
void reduce_xor(const Storage& source, const Storage& destination, int dim, bool clear, Loc loc) {
  reduce("xor", source, destination, dim, clear, loc);
}

void reduce_argmax(const Storage& source, const Storage& index, int dim, Loc loc) {
  arg_reduce("max", source, index, dim, loc);
}
void reduce_argmin(const Storage& source, const Storage& index, int dim, Loc loc) {
  arg_reduce("min", source, index, dim, loc);
}

void cumsum(const Storage& source, const Storage& destination, int dim, bool reverse, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value from = tracer.use(source.traced(), loc), to = tracer.use(destination.traced(), loc);
  Attrs attrs;
  attrs.set("dim", axis_of(source, dim, "cumsum", loc));
  attrs.set("reverse", reverse);
  tracer.emit(OpCode::Cumsum, {from, to}, std::move(attrs), loc);
}

void sort(const Storage& keys, const Storage& sorted, const Storage& positions, int dim, Loc loc) {
  sort(keys, nullptr, sorted, positions, dim, loc);
}
void sort(const Storage& keys, const Storage& values, const Storage& sorted,
          const Storage& sorted_values, int dim, Loc loc) {
  sort(keys, &values, sorted, sorted_values, dim, loc);
}

void topk(const Storage& keys, const Storage& largest, const Storage& positions, int dim, Loc loc) {
  first_of("topk", keys, nullptr, largest, positions, dim, loc);
}
void topk(const Storage& keys, const Storage& values, const Storage& largest,
          const Storage& their_values, int dim, Loc loc) {
  first_of("topk", keys, &values, largest, their_values, dim, loc);
}

}  // namespace dsl
}  // namespace kiln
