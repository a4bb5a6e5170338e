#include "dsl/tile_ops.h"

#include <fmt/format.h>

#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

void reduce(const char* kind, const Storage& source, const Storage& destination, int dim,
            bool clear, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Value from = tracer.use(source.traced(), loc), to = tracer.use(destination.traced(), loc);
  int rank = source.type().rank();
  if (dim < -rank || dim >= rank)
    throw UserError(loc, fmt::format("reduce_{}: dim {} of {}", kind, dim, str(source.type())),
                    fmt::format("{} to {}", -rank, rank - 1));
  Attrs attrs;
  attrs.set("kind", std::string(kind));
  attrs.set("dim", int64_t{dim < 0 ? dim + rank : dim});
  attrs.set("clear", clear);
  tracer.emit(OpCode::Reduce, {from, to}, std::move(attrs), loc);
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

}  // namespace dsl
}  // namespace kiln
