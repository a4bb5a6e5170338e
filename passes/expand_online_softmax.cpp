// The online softmax in reductions and element-wise loops: a sweep over s for the row maxima, one
// for p, and one for the row sums (of p before it is rounded to its dtype).
//
// With fast math the exponent is formed as k·s − k·u, k = scale·log2 e and k·u once a row: one
// fused multiply-add and one exp2 an element. Without, it is scale·(s − u), as the ops say; the two
// differ only where scale·s overflows f32.
#include <limits>
#include <numbers>

#include "ir/error.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Index = std::span<const Value>;

class Expansion {
 public:
  Expansion(Builder& build, const Op& op)
      : build_(build), kernel_(build.kernel()), in_(op.operands) {}

  void step() {
    Value s = in_[0], m = in_[1], l = in_[2], p = in_[3], alpha = in_[4], scale = in_[5];
    const Type s_type = kernel_.type(s), p_type = kernel_.type(p);
    const Shape rows = {s_type.shape[0]};
    const bool fast = kernel_.fast_math;
    Value k = fast ? mul(scale, constant(std::numbers::log2e)) : scale;
    const OpCode power = fast ? OpCode::Exp2 : OpCode::Exp;
    Value row = build_.alloc(Space::Fragment, F32, rows);  // maximum, then u or k·u, then sum
    reduce("max", s, row);
    build_.parallel(rows, [&](Index i) {
      Value before = build_.load(m, {i[0]});
      Value now = build_.binary(OpCode::Max, before, build_.load(row, {i[0]}));
      Value size = build_.unary(OpCode::Abs, now);
      Value finite = build_.compare("lt", size, constant(kInfinity));
      Value u = build_.select(finite, now, constant(0));
      Value grown = build_.unary(power, mul(build_.binary(OpCode::Sub, before, u), k));
      Value empty = build_.compare("eq", before, constant(-kInfinity));
      build_.store(build_.select(empty, constant(0), grown), alpha, {i[0]});
      build_.store(fast ? mul(u, k) : u, row, {i[0]});
      build_.store(now, m, {i[0]});
    });

    const bool rounds = p_type.dtype != F32;
    Value unrounded = rounds ? build_.alloc(Space::Fragment, F32, s_type.shape) : p;
    build_.parallel(s_type.shape, [&](Index i) {
      Value score = build_.load(s, {i[0], i[1]}), u = build_.load(row, {i[0]});
      Value exponent = fast ? build_.binary(OpCode::Sub, mul(score, k), u)
                            : mul(build_.binary(OpCode::Sub, score, u), k);
      Value weight = build_.unary(power, exponent);
      build_.store(weight, unrounded, {i[0], i[1]});
      if (rounds) build_.store(weight, p, {i[0], i[1]});
    });

    reduce("sum", unrounded, row);
    // Where l has parts, the first takes the whole sum.
    build_.parallel(kernel_.type(l).shape, [&](Index i) {
      const std::vector<Value> at(i.begin(), i.end());
      Value sum = build_.load(l, at);
      Value kept = mul(sum, build_.load(alpha, {i[0]}));
      Value added = build_.binary(OpCode::Add, kept, build_.load(row, {i[0]}));
      if (i.size() > 1) {
        Value first = build_.compare("eq", i[1], build_.constant(I32, 0));
        added = build_.select(first, added, kept);
      }
      build_.store(added, l, at);
    });
  }

  void scale_rows() { guarded_rows(in_[0], in_[1], OpCode::Mul); }

  void finish() {
    Value m = in_[1], l = in_[2], lse = in_[3], scale = in_[4];
    guarded_rows(in_[0], l, OpCode::Div);
    if (!lse) return;
    build_.parallel(kernel_.type(l).shape, [&](Index i) {
      Value sum = build_.load(l, {i[0]});
      Value log = build_.unary(OpCode::Log, sum);
      Value total = build_.binary(OpCode::Add, mul(build_.load(m, {i[0]}), scale), log);
      Value empty = build_.compare("eq", sum, constant(0));
      build_.store(build_.select(empty, constant(-kInfinity), total), lse, {i[0]});
    });
  }

 private:
  Value constant(double value) { return build_.constant(F32, value); }
  Value mul(Value a, Value b) { return build_.binary(OpCode::Mul, a, b); }

  void reduce(const char* kind, Value source, Value destination) {
    Attrs attrs;
    attrs.set("kind", std::string(kind));
    attrs.set("dim", int64_t{1});
    build_.emit(OpCode::Reduce, {source, destination}, std::move(attrs));
  }

  // acc[i, j] ∘= by[i], 0 where by[i] is 0.
  void guarded_rows(Value acc, Value by, OpCode code) {
    const Type type = kernel_.type(acc);
    build_.parallel(type.shape, [&](Index i) {
      Value factor = build_.cast(build_.load(by, {i[0]}), type.dtype);
      Value result = build_.binary(code, build_.load(acc, {i[0], i[1]}), factor);
      Value zero = build_.constant(type.dtype, 0);
      Value none = build_.compare("eq", factor, zero);
      build_.store(build_.select(none, zero, result), acc, {i[0], i[1]});
    });
  }

  Builder& build_;
  Kernel& kernel_;
  const std::vector<Value> in_;
};

}  // namespace

void expand_online_softmax(Kernel& kernel) {
  ValueMap names;  // none of the three has a result
  rewrite(kernel, kernel.body, names, [&](Builder& build, OpId id) {
    const Op& op = kernel.op(id);
    switch (op.code) {
      case OpCode::SoftmaxStep: Expansion(build, op).step(); return true;
      case OpCode::ScaleRows: Expansion(build, op).scale_rows(); return true;
      case OpCode::SoftmaxFinish: Expansion(build, op).finish(); return true;
      default: return false;
    }
  });
}

}  // namespace kiln
