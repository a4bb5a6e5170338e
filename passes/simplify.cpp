#include "passes/algebra.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

// Operands come first, so most programs need one round; what replaces an op is itself looked at in
// the next. The bound is for programs made to defeat that.
constexpr int kMaxRounds = 16;

struct Round {
  Kernel& kernel;
  ValueMap& names;
  bool changed = false;

  bool operator()(Builder& build, OpId id) {
    bool replaced = replace(build, id);
    changed |= replaced;
    return replaced;
  }

  bool replace(Builder& build, OpId id) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::If) return branch(build, op);
    if (op.code == OpCode::For) return loop(build, op);
    Value value = op.result ? simpler(build, op) : Value{};
    if (value) names[op.result.id] = value;
    return static_cast<bool>(value);
  }

  // Tiles of the region now live as long as those of the one around it.
  void splice(RegionId region, RegionId into) {
    rewrite(kernel, region, names, *this);
    move_ops(kernel, region, into);
  }

  bool is_empty(RegionId region) const { return kernel.region(region).ops.empty(); }

  bool branch(Builder& build, const Op& op) {
    bool has_else = op.regions.size() == 2;
    if (auto condition = constant_int(kernel, op.operands[0])) {
      if (*condition || has_else) splice(op.regions[*condition ? 0 : 1], build.region());
      return true;
    }
    bool then_empty = is_empty(op.regions[0]), else_empty = !has_else || is_empty(op.regions[1]);
    if (then_empty && else_empty) return true;
    if (!has_else || !(then_empty || else_empty)) return false;
    Value condition = then_empty ? build.unary(OpCode::Not, op.operands[0]) : op.operands[0];
    OpId one_armed = build.emit(OpCode::If, {condition});
    splice(op.regions[then_empty ? 1 : 0], build.add_region(one_armed));
    return true;
  }

  bool loop(Builder& build, const Op& op) {
    auto begin = constant_int(kernel, op.operands[0]), end = constant_int(kernel, op.operands[1]),
         step = constant_int(kernel, op.operands[2]);
    if (!begin || !end || !step || *step <= 0) return false;  // a bad step is reported elsewhere
    if (*begin >= *end) return true;
    if (*begin + *step < *end) return false;
    names[kernel.region(op.regions[0]).args[0].id] = op.operands[0];
    splice(op.regions[0], build.region());
    return true;
  }
};

}  // namespace

void simplify(Kernel& kernel) {
  for (int round = 0; round < kMaxRounds; ++round) {
    ValueMap names;
    Round visitor{kernel, names};
    rewrite(kernel, kernel.body, names, visitor);
    if (!visitor.changed) return;
  }
}

}  // namespace kiln
