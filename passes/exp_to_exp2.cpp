// e^a = 2^(a·log2 e): hardware and our own code compute powers of two. The factor costs nothing
// when `a` already has one that is constant or the same for the whole loop: it goes there.
#include <climits>
#include <numbers>

#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

class Log2Domain {
 public:
  explicit Log2Domain(Kernel& kernel) : kernel_(kernel), depth_(kernel.value_count(), INT_MAX) {
    measure(kernel.body, 0);
  }

  // a · log2 e, by as few ops an element as there were.
  Value scaled(Builder& build, Value a) {
    if (auto constant = constant_of(kernel_, a))
      return build.constant(F32, constant->f * std::numbers::log2e);
    const Op* op = takes_factor(a) ? &kernel_.op(kernel_.def(a)) : nullptr;
    if (!op) return build.binary(OpCode::Mul, a, build.constant(F32, std::numbers::log2e));
    const auto& in = op->operands;
    switch (op->code) {
      case OpCode::Neg: return build.unary(OpCode::Neg, scaled(build, in[0]));
      case OpCode::Select: {  // one after the other: C++ leaves the order of arguments open
        Value otherwise = scaled(build, in[2]);
        return build.select(in[0], scaled(build, in[1]), otherwise);
      }
      case OpCode::Mul: {
        bool right = constant_of(kernel_, in[1]) || depth(in[1]) < depth(in[0]);
        Value factor = scaled(build, in[right ? 1 : 0]);
        return build.binary(OpCode::Mul, in[right ? 0 : 1], factor);
      }
      default: {  // Add, Sub: x·c − y·c stays one fused multiply-add an element
        Value x = scaled(build, in[0]);
        return build.binary(op->code, x, scaled(build, in[1]));
      }
    }
  }

 private:
  void measure(RegionId region, int depth) {
    for (Value arg : kernel_.region(region).args) depth_[arg.id] = depth;
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (op.result) depth_[op.result.id] = depth;
      for (RegionId inner : op.regions) measure(inner, depth + 1);
    }
  }
  int depth(Value value) const { return value.id < depth_.size() ? depth_[value.id] : INT_MAX; }

  // Whether a factor can be multiplied into a part of `a` that is computed less often.
  bool takes_factor(Value a) const {
    if (constant_of(kernel_, a)) return true;
    OpId id = kernel_.def(a);
    if (!id) return false;
    const auto& in = kernel_.op(id).operands;
    switch (kernel_.op(id).code) {
      case OpCode::Mul:
        return constant_of(kernel_, in[0]) || constant_of(kernel_, in[1]) ||
               depth(in[0]) != depth(in[1]);
      case OpCode::Neg: return takes_factor(in[0]);
      case OpCode::Add:
      case OpCode::Sub: return takes_factor(in[0]) || takes_factor(in[1]);
      case OpCode::Select: return takes_factor(in[1]) && takes_factor(in[2]);
      default: return false;
    }
  }

  Kernel& kernel_;
  std::vector<int> depth_;  // of the region that defines each value
};

}  // namespace

void exp_to_exp2(Kernel& kernel) {
  if (!kernel.fast_math) return;
  Log2Domain domain(kernel);
  ValueMap names;
  rewrite(kernel, kernel.body, names, [&](Builder& build, OpId id) {
    const Op& op = kernel.op(id);
    bool is_exp = op.code == OpCode::Exp;
    if ((!is_exp && op.code != OpCode::Log) || kernel.type(op.result).dtype != F32) return false;
    Value value;
    if (is_exp) {
      value = build.unary(OpCode::Exp2, domain.scaled(build, op.operands[0]));
    } else {
      Value log2 = build.unary(OpCode::Log2, op.operands[0]);
      value = build.binary(OpCode::Mul, log2, build.constant(F32, std::numbers::ln2));
    }
    names[op.result.id] = value;
    return true;
  });
}

}  // namespace kiln
