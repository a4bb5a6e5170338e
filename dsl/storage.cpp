#include "dsl/storage.h"

#include <fmt/format.h>

#include "dsl/math.h"
#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

// What the user calls it: the tensor's name, or the type of the tile.
std::string describe(const Kernel& kernel, Value storage) {
  if (const Op* tensor = kernel.def_as(base_of(kernel, storage), OpCode::Tensor))
    return "'" + tensor->word("name") + "'";
  return str(kernel.type(storage));
}

// An index that is known while tracing lies in the axis.
void check_bounds(const Kernel& kernel, Value base, size_t axis, Value index, Loc loc) {
  auto known = constant_int(kernel, index);
  int64_t extent = kernel.type(base).shape[axis];
  if (!known || (*known >= 0 && (extent == kDynamic || *known < extent))) return;
  std::string range = extent == kDynamic ? "starts at 0" : fmt::format("has extent {}", extent);
  throw UserError(
      loc,
      fmt::format("index {} is out of range: axis {} of {} {}", *known, axis,
                  describe(kernel, base), range),
      extent == kDynamic ? "an index of 0 or more" : fmt::format("0 to {}", extent - 1));
}

void check_rank(const Kernel& kernel, Value base, size_t count, Loc loc) {
  size_t rank = kernel.type(base).shape.size();
  if (rank != count)
    throw UserError(
        loc,
        fmt::format("{} has {} {}, got {} {}", describe(kernel, base), rank,
                    rank == 1 ? "axis" : "axes", count, count == 1 ? "index" : "indices"),
        "one index, span(start, n) or all for every axis");
}

Value build_view(const Storage& base, const std::vector<Axis>& axes, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.inside_launch(loc, "a view");
  Value storage = tracer.use(base.traced(), loc);
  check_rank(tracer.kernel(), storage, axes.size(), loc);
  std::vector<Value> starts;
  Shape sizes;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const Axis& index = axes[axis];
    starts.push_back(index.start.index("a view's index"));
    int64_t size = index.kind == Axis::Kind::All    ? base.shape()[axis]
                   : index.kind == Axis::Kind::Span ? index.length.constant("the length of a span")
                                                    : 1;
    if (size < 1 && index.kind == Axis::Kind::Span)
      throw UserError(index.length.loc(),
                      fmt::format("span: expected a length above 0, got {}", size),
                      "span(start, n) is n positions from start");
    if (index.kind == Axis::Kind::One)
      check_bounds(tracer.kernel(), storage, axis, starts.back(), index.start.loc());
    sizes.push_back(size);
  }
  builder.loc = loc;
  return builder.slice(storage, std::move(starts), std::move(sizes));
}

Tile alloc(Space space, const std::vector<Arg>& extents, DType dtype, const char* what, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.inside_launch(loc, what);
  Shape shape = static_shape(extents, what);
  builder.loc = loc;
  return Tile(builder.alloc(space, dtype, std::move(shape)), loc);
}

}  // namespace

Shape static_shape(const std::vector<Arg>& extents, std::string_view what) {
  Shape shape;
  for (const Arg& extent : extents)
    shape.push_back(extent.constant(fmt::format("{}: extent {}", what, shape.size())));
  return shape;
}

Storage::Storage(Value value, Loc loc)
    : traced_(Tracer::current(loc).traced(value)),
      type_(Tracer::current(loc).kernel().type(value)) {
  const Tracer& tracer = Tracer::current(loc);
  tracer.check(tracer.kernel().def(value));
}

View::View(const Storage& base, const std::vector<Axis>& axes, Loc loc)
    : Storage(build_view(base, axes, loc), loc) {}

// The read happens where the element is named, so that `auto x = s(i, j)` keeps its value; trace()
// removes it again if only an assignment follows.
Element::Read Element::read(const Storage& base, const std::vector<Axis>& axes, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.inside_launch(loc, "an element");
  Value storage = tracer.use(base.traced(), loc);
  check_rank(tracer.kernel(), storage, axes.size(), loc);
  std::vector<Value> index;
  for (const Axis& axis : axes) {
    index.push_back(axis.start.index("an index"));
    check_bounds(tracer.kernel(), storage, index.size() - 1, index.back(), axis.start.loc());
  }
  builder.loc = loc;
  return {builder.load(storage, index), storage, index};
}

Element::Element(const Storage& base, const std::vector<Axis>& axes, Loc loc)
    : Element(read(base, axes, loc), loc) {}

Element::Element(Read read, Loc loc)
    : Expr(read.value, loc),
      base_(Tracer::current(loc).traced(read.base)),
      index_(std::move(read.index)),
      element_(Expr::dtype()),
      loc_(loc) {}

void Element::store(const Arg& value) const {
  Tracer& tracer = Tracer::current(loc_);
  Value base = tracer.use(base_, loc_);
  Value stored = value.stored_as(element_, "store");
  std::vector<Value> operands = {stored, base};
  operands.insert(operands.end(), index_.begin(), index_.end());
  tracer.emit(OpCode::Store, std::move(operands), {}, loc_);
}

void Element::update(Expr (*op)(Arg, Arg), const Arg& value) const {
  store(Arg(op(Arg(*this, loc_), value), loc_));
}

void Element::operator+=(Arg value) && {
  update(operator+, value);
}
void Element::operator-=(Arg value) && {
  update(operator-, value);
}
void Element::operator*=(Arg value) && {
  update(operator*, value);
}
void Element::operator/=(Arg value) && {
  update(operator/, value);
}
void Element::operator%=(Arg value) && {
  update(operator%, value);
}
void Element::operator&=(Arg value) && {
  update(operator&, value);
}
void Element::operator|=(Arg value) && {
  update(operator|, value);
}
void Element::operator^=(Arg value) && {
  update(operator^, value);
}

Tile alloc_shared(const std::vector<Arg>& extents, DType dtype, Loc loc) {
  return alloc(Space::Shared, extents, dtype, "alloc_shared", loc);
}
Tile alloc_fragment(const std::vector<Arg>& extents, DType dtype, Loc loc) {
  return alloc(Space::Fragment, extents, dtype, "alloc_fragment", loc);
}
Tile alloc_local(const std::vector<Arg>& extents, DType dtype, Loc loc) {
  return alloc(Space::Local, extents, dtype, "alloc_local", loc);
}

}  // namespace dsl
}  // namespace kiln
