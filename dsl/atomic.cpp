#include "dsl/atomic.h"

#include <fmt/format.h>

namespace kiln {
inline namespace dsl {

Expr Element::atomic(const char* kind, const Arg& value, Loc loc) const {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.inside_launch(loc, fmt::format("atomic_{}", kind));
  Value base = tracer.use(base_, loc);
  Value with = value.as(element_, fmt::format("atomic_{}", kind));
  builder.loc = loc;
  return Expr(builder.atomic(kind, with, base, index_), loc);
}

Expr atomic_add(const Element& element, Arg value, Loc loc) {
  return element.atomic("add", value, loc);
}
Expr atomic_max(const Element& element, Arg value, Loc loc) {
  return element.atomic("max", value, loc);
}
Expr atomic_min(const Element& element, Arg value, Loc loc) {
  return element.atomic("min", value, loc);
}
Expr atomic_and(const Element& element, Arg value, Loc loc) {
  return element.atomic("and", value, loc);
}
Expr atomic_or(const Element& element, Arg value, Loc loc) {
  return element.atomic("or", value, loc);
}
Expr atomic_xor(const Element& element, Arg value, Loc loc) {
  return element.atomic("xor", value, loc);
}
Expr atomic_exchange(const Element& element, Arg value, Loc loc) {
  return element.atomic("exchange", value, loc);
}

}  // namespace dsl
}  // namespace kiln
