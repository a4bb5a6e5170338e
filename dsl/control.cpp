#include "dsl/control.h"

#include <fmt/format.h>

#include <exception>
#include <string>

#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

std::string word_of(Schedule schedule) {
  switch (schedule) {
    case Schedule::Auto: return "auto";
    case Schedule::Serial: return "serial";
    case Schedule::Overlap: return "overlap";
  }
  throw InternalError("no such schedule");
}

Loop<1> for_loop(const char* kind, const Arg& begin, const Arg& end, const Arg& step,
                 PipelineOptions options, Loc loc) {
  std::string what = kind;
  Tracer::current(loc).inside_launch(loc, what);
  std::vector<Value> bounds = {begin.index(what), end.index(what), step.index(what)};
  Attrs attrs;
  attrs.set("kind", what);
  attrs.set("stages", int64_t{options.stages});
  attrs.set("schedule", word_of(options.schedule));
  return Loop<1>(OpCode::For, std::move(bounds), std::move(attrs), 1, loc);
}

template <size_t N>
Loop<N> parallel_loop(const std::vector<Arg>& extents, Loc loc) {
  Tracer::current(loc).inside_launch(loc, "parallel");
  Attrs attrs;
  attrs.set("extents", static_shape(extents, "parallel"));
  return Loop<N>(OpCode::Parallel, std::vector<Value>{}, std::move(attrs), N, loc);
}

}  // namespace

LoopBase::LoopBase(OpCode code, std::vector<Value> operands, Attrs attrs, size_t indices, Loc loc)
    : code_(code),
      operands_(std::move(operands)),
      attrs_(std::move(attrs)),
      count_(indices),
      loc_(loc),
      exceptions_(std::uncaught_exceptions()) {}

LoopBase::~LoopBase() noexcept(false) {
  bool left_early = is_open();
  scope_.reset();
  if (left_early && std::uncaught_exceptions() == exceptions_)
    throw UserError(loc_, "break, return or goto leaves a traced loop, whose body is traced once",
                    "a condition inside the loop instead: when(...), or loop with exit_if");
}

void LoopBase::open() {
  Tracer& tracer = Tracer::current(loc_);
  Builder& builder = tracer.inside_launch(loc_, info(code_).name);
  OpId op = builder.emit(code_, operands_, attrs_);
  RegionId region = builder.add_region(op);
  scope_.emplace(tracer, op, region);
  for (size_t axis = 0; axis < count_; ++axis)
    indices_.push_back(builder.kernel().add_argument(region, Type::scalar(I32)));
  tracer.check(op);
}

void LoopBase::close() {
  scope_.reset();
}

Loop<1> serial(Arg end, Loc loc) {
  return for_loop("serial", Arg(0, loc), end, Arg(1, loc), {.stages = 0}, loc);
}
Loop<1> serial(Arg begin, Arg end, Loc loc) {
  return for_loop("serial", begin, end, Arg(1, loc), {.stages = 0}, loc);
}
Loop<1> serial(Arg begin, Arg end, Arg step, Loc loc) {
  return for_loop("serial", begin, end, step, {.stages = 0}, loc);
}
Loop<1> unroll(Arg end, Loc loc) {
  return for_loop("unroll", Arg(0, loc), end, Arg(1, loc), {.stages = 0}, loc);
}
Loop<1> unroll(Arg begin, Arg end, Loc loc) {
  return for_loop("unroll", begin, end, Arg(1, loc), {.stages = 0}, loc);
}
Loop<1> unroll(Arg begin, Arg end, Arg step, Loc loc) {
  return for_loop("unroll", begin, end, step, {.stages = 0}, loc);
}
Loop<1> pipelined(Arg end, PipelineOptions options, Loc loc) {
  return for_loop("pipelined", Arg(0, loc), end, Arg(1, loc), options, loc);
}
Loop<1> pipelined(Arg begin, Arg end, PipelineOptions options, Loc loc) {
  return for_loop("pipelined", begin, end, Arg(1, loc), options, loc);
}

Loop<1> selected(const Storage& row, SelectedOptions options, Loc loc) {
  Tracer& tracer = Tracer::current(loc);
  tracer.inside_launch(loc, "selected");
  std::vector<Value> operands = {tracer.use(row.traced(), loc), {}, {}};
  if (options.limit.present()) operands[1] = options.limit.index("selected: limit");
  if (options.count.present()) operands[2] = options.count.index("selected: count");
  Attrs attrs;
  attrs.set("stages", int64_t{options.stages});
  attrs.set("ordered", options.ordered);
  attrs.set("schedule", word_of(options.schedule));
  return Loop<1>(OpCode::Selected, std::move(operands), std::move(attrs), 1, loc);
}

Loop<1> parallel(Arg a, Loc loc) {
  return parallel_loop<1>({a}, loc);
}
Loop<2> parallel(Arg a, Arg b, Loc loc) {
  return parallel_loop<2>({a, b}, loc);
}
Loop<3> parallel(Arg a, Arg b, Arg c, Loc loc) {
  return parallel_loop<3>({a, b, c}, loc);
}
Loop<4> parallel(Arg a, Arg b, Arg c, Arg d, Loc loc) {
  return parallel_loop<4>({a, b, c, d}, loc);
}

Branch::Branch(OpCode code, const char* what, const Arg& condition, Loc loc)
    : tracer_(Tracer::current(loc)), loc_(loc) {
  Builder& builder = tracer_.inside_launch(loc, what);
  std::vector<Value> operands;
  if (condition.present()) {
    if (condition.dtype() != Bool)
      throw UserError(loc, fmt::format("{}: expected a bool, got {}", what, condition.describe()),
                      fmt::format("compare it: {}(x != 0, ...)", what));
    operands.push_back(condition.as(Bool, what));
  }
  builder.loc = loc;
  op_ = builder.emit(code, std::move(operands));
}

Branch Branch::loop(Loc loc) {
  return Branch(OpCode::Loop, "loop", Arg::none(), loc);
}

Branch Branch::exit(const Arg& condition, Loc loc) {
  const Tracer& tracer = Tracer::current(loc);
  const OpId around = tracer.innermost();
  if (!around || tracer.kernel().op(around).code != OpCode::Loop)
    throw UserError(loc, "exit_if: expected it directly in the body of a loop",
                    "keep the condition in a Var and leave in the loop's own body");
  return Branch(OpCode::ExitIf, "exit_if", condition, loc);
}

void Branch::require_exit() const {
  const Kernel& kernel = tracer_.kernel();
  for (OpId id : kernel.region(kernel.op(op_).regions[0]).ops)
    if (kernel.op(id).code == OpCode::ExitIf) return;
  throw UserError(loc_, "loop: without an exit_if it would never end",
                  "exit_if(condition) directly in its body");
}

RegionScope Branch::region() {
  RegionId region = tracer_.scalars(loc_).add_region(op_);
  tracer_.check(op_);
  return RegionScope(tracer_, op_, region);
}

}  // namespace dsl
}  // namespace kiln
