#include "dsl/softmax.h"

#include <fmt/format.h>

#include <cmath>

#include "dsl/math.h"
#include "dsl/tile_ops.h"
#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

Expr checked_scale(const Arg& scale, Loc loc) {
  if (scale.is_number()) {
    double rounded = round_to(F32, scale.real());
    if (!std::isfinite(rounded) || rounded <= 0)
      throw UserError(loc,
                      fmt::format("online_softmax: the scale is {}; it must be finite and greater "
                                  "than 0",
                                  scale.real()),
                      "multiply s by that factor before the step and give 1 as the scale");
    return Expr(Arg(rounded, scale.loc()).as(F32, "online_softmax: scale"), loc);
  }
  return Expr(scale.as(F32, "online_softmax: scale"), loc);
}

}  // namespace

OnlineSoftmax::OnlineSoftmax(Arg rows, Arg scale, Loc loc)
    : max_(alloc_fragment({rows}, F32, loc)),
      sum_(alloc_fragment({rows}, F32, loc)),
      alpha_(alloc_fragment({rows}, F32, loc)),
      scale_(checked_scale(scale, loc)) {
  fill(max_, Arg(-INFINITY, loc), loc);
  clear(sum_, loc);
}

void OnlineSoftmax::step(const Storage& s, const Storage& p, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  auto use = [&](const auto& named) { return tracer.use(named.traced(), loc); };
  tracer.emit(OpCode::SoftmaxStep, {use(s), use(max_), use(sum_), use(p), use(alpha_), use(scale_)},
              {}, loc);
}

void OnlineSoftmax::step(const Storage& s, const Storage& p, const Storage& acc, Loc loc) {
  step(s, p, loc);
  Tracer& tracer = Tracer::current(loc);
  auto use = [&](const auto& named) { return tracer.use(named.traced(), loc); };
  tracer.emit(OpCode::ScaleRows, {use(acc), use(alpha_)}, {}, loc);
}

void OnlineSoftmax::finish(const Storage& acc, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  auto use = [&](const auto& named) { return tracer.use(named.traced(), loc); };
  tracer.emit(OpCode::SoftmaxFinish, {use(acc), use(max_), use(sum_), Value{}, use(scale_)}, {},
              loc);
}

void OnlineSoftmax::finish(const Storage& acc, const Storage& lse, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  auto use = [&](const auto& named) { return tracer.use(named.traced(), loc); };
  tracer.emit(OpCode::SoftmaxFinish, {use(acc), use(max_), use(sum_), use(lse), use(scale_)}, {},
              loc);
}

}  // namespace dsl
}  // namespace kiln
