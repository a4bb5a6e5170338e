#include "dsl/tracer.h"

#include <fmt/format.h>

#include <atomic>
#include <cctype>

#include "ir/error.h"
#include "ir/verify.h"

namespace kiln {
inline namespace dsl {
namespace {

thread_local Tracer* active = nullptr;

uint64_t next_number() {
  static std::atomic<uint64_t> count{0};
  return ++count;
}

void check_name(const std::string& name, std::string_view what, Loc loc) {
  bool ok = !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0]));
  for (unsigned char c : name) ok = ok && (std::isalnum(c) || c == '_') && c < 0x80;
  if (!ok)
    throw UserError(loc, fmt::format("{}: '{}' is not a name", what, name),
                    "letters, digits and _, not starting with a digit");
}

}  // namespace

Tracer::Tracer(std::string name, Loc loc)
    : kernel_(name),
      builder_(kernel_),
      number_(next_number()),
      kernel_name_(intern(name)),
      loc_(loc),
      outer_(active),
      open_{{kernel_.body, OpId{}}} {
  check_name(name, "trace", loc);
  active = this;
}

Tracer::~Tracer() {
  launch_.reset();
  active = outer_;
}

Tracer& Tracer::current(Loc loc) {
  if (!active)
    throw UserError(loc, "used outside a kernel; wrap the code in trace(...)",
                    "trace(\"name\", [&] { … })");
  return *active;
}

Loc Tracer::last_loc() {
  return active ? active->builder_.loc : Loc{};
}

Kernel Tracer::finish() {
  if (!launch_)
    throw UserError(loc_, fmt::format("kernel '{}' has no launch", kernel_.name),
                    "after the tensors: auto [bx, by, bz] = launch({...});");
  launch_.reset();
  return std::move(kernel_);
}

Builder& Tracer::scalars(Loc loc) {
  builder_.loc = loc;
  return builder_;
}

Builder& Tracer::inside_launch(Loc loc, std::string_view what) {
  if (!launch_)
    throw UserError(loc, fmt::format("{}: no launch is open", what),
                    "call launch({...}) first; what comes after it runs in every block");
  return scalars(loc);
}

Builder& Tracer::top_level(Loc loc, std::string_view what) {
  if (launch_)
    throw UserError(loc, fmt::format("{} comes after a launch", what),
                    "declare dims, params and tensors before the first launch");
  return scalars(loc);
}

// Values made since the last change of region are in the innermost open one.
void Tracer::note_values() {
  while (home_.size() < kernel_.value_count()) home_.push_back(open_.back().region);
}

Value Tracer::use(const Traced& traced, Loc loc) {
  if (traced.trace != number_)
    throw UserError(
        loc,
        fmt::format("a value of kernel '{}' is used in kernel '{}'", traced.kernel, kernel_.name),
        "a kernel can use only its own dims, tensors, tiles and values");
  note_values();
  RegionId home = home_[traced.value.id];
  for (const Frame& frame : open_) {
    if (frame.region != home) continue;
    if (kernel_.def_as(traced.value, OpCode::Load)) check(kernel_.def(traced.value));
    return traced.value;
  }
  const Type& type = kernel_.type(traced.value);
  if (type.is_storage())
    throw UserError(
        loc, fmt::format("{} is used after the loop, branch or launch that made it", str(type)),
        "allocate it before that");
  if (!kernel_.def(traced.value))
    throw UserError(loc, "an index is used after its loop or launch has ended",
                    "declare a Var before the loop and assign the index to it inside");
  throw UserError(loc, "a value is used after the loop, branch or launch that computed it",
                  "declare a Var before that and assign to it inside");
}

void Tracer::check(OpId op) const {
  OpId parallel;
  for (const Frame& frame : open_)
    if (frame.op && frame.op != op && kernel_.op(frame.op).code == OpCode::Parallel)
      parallel = frame.op;
  verify_op(kernel_, op, parallel);
}

void Tracer::emit(OpCode code, std::vector<Value> operands, Attrs attrs, Loc loc) {
  check(inside_launch(loc, info(code).name).emit(code, std::move(operands), std::move(attrs)));
}

void Tracer::declare(const std::string& name, std::string_view what, Loc loc) {
  check_name(name, what, loc);
  if (!names_.insert(name).second)
    throw UserError(loc, fmt::format("{}: the name '{}' is taken", what, name),
                    "dims, params and tensors of a kernel have different names");
}

// The extents of a second launch are written while the first is still open, so their ops are in
// its region. Those computed from dims, params and numbers can be computed at top level as well.
Value Tracer::at_top(Value value, Loc loc) {
  note_values();
  if (home_[value.id] == kernel_.body) return value;
  OpId def = kernel_.def(value);
  if (!def || !info(kernel_.op(def).code).pure || !kernel_.type(value).is_scalar())
    throw UserError(loc, "launch: an extent depends on what a block computes",
                    "extents are computed from dims, params and numbers");
  std::vector<Value> operands;
  for (Value operand : std::vector<Value>(kernel_.op(def).operands))
    operands.push_back(at_top(operand, loc));
  const Op op = kernel_.op(def);
  builder_.loc = op.loc;
  return kernel_.op(builder_.emit(op.code, operands, op.attrs, kernel_.type(value))).result;
}

std::vector<Value> Tracer::open_launch(const std::vector<Value>& extents, int rasterize, int warps,
                                       Loc loc) {
  note_values();
  launch_.reset();
  std::vector<Value> operands;
  for (Value extent : extents) {
    operands.push_back(at_top(extent, loc));
    note_values();
  }
  builder_.loc = loc;
  Attrs attrs;
  attrs.set("rasterize", int64_t{rasterize});
  attrs.set("warps", int64_t{warps});
  OpId op = builder_.emit(OpCode::Launch, operands, std::move(attrs));
  RegionId region = builder_.add_region(op);
  launch_ = std::make_unique<RegionScope>(*this, op, region);
  std::vector<Value> blocks;
  for (size_t axis = 0; axis < operands.size(); ++axis)
    blocks.push_back(kernel_.add_argument(region, Type::scalar(I32)));
  check(op);
  return blocks;
}

RegionScope::RegionScope(Tracer& tracer, OpId op, RegionId region)
    : tracer_(tracer), scope_(tracer.builder_, region) {
  tracer_.note_values();
  tracer_.open_.push_back({region, op});
}

RegionScope::~RegionScope() {
  tracer_.note_values();
  tracer_.open_.pop_back();
}

}  // namespace dsl
}  // namespace kiln
