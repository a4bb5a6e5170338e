// Identities hold for every input: integers wrap, so none of them assumes the absence of overflow;
// floats have NaN, infinities and two zeros, so only those that respect them are here (that one NaN
// may become another is not a difference).
#include "passes/algebra.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "ir/interp.h"

namespace kiln {
namespace {

bool commutes(OpCode code) {
  switch (code) {
    case OpCode::Add:
    case OpCode::Mul:
    case OpCode::Min:
    case OpCode::Max:
    case OpCode::And:
    case OpCode::Or:
    case OpCode::Xor: return true;
    default: return false;
  }
}

// Values of `from` and their meaning survive a cast to `to`.
bool lossless(DType from, DType to) {
  if (from == to || from == Bool) return true;
  if (is_int(from)) {
    int bits = static_cast<int>(size_of(from)) * 8;
    if (is_int(to)) {
      bool wider = size_of(from) < size_of(to);
      return is_unsigned_int(from) ? wider : wider && is_signed_int(to);
    }
    int digits = to == F64 ? 53 : to == F32 ? 24 : to == F16 ? 11 : to == BF16 ? 8 : 0;
    return (is_unsigned_int(from) ? bits : bits - 1) <= digits;
  }
  switch (from) {
    case E4M3:
    case E5M2: return to == F16 || to == BF16 || to == F32 || to == F64;
    case F16:
    case BF16: return to == F32 || to == F64;
    case F32: return to == F64;
    default: return false;
  }
}

// Smallest and largest value of an integer type, as Scalar keeps them.
Scalar lowest(DType dtype) {
  if (!is_signed_int(dtype)) return Scalar::of_int(dtype, 0);
  return Scalar::of_int(dtype, static_cast<int64_t>(1ull << (size_of(dtype) * 8 - 1)));
}
Scalar highest(DType dtype) {
  return Scalar::of_int(dtype, is_signed_int(dtype) ? ~lowest(dtype).i : -1);
}

class Simplifier {
 public:
  Simplifier(Builder& builder, const Op& op)
      : build_(builder),
        kernel_(builder.kernel()),
        op_(op),
        code_(op.code),
        a_(op.operand(0)),
        b_(op.operand(1)),
        dtype_(kernel_.type(a_).dtype),
        ca_(constant_of(kernel_, a_)),
        cb_(constant_of(kernel_, b_)) {}

  Value run() {
    if (Value folded = fold()) return folded;
    if (commutes(code_) && ca_ && !cb_ && may_swap()) return emit(b_, a_);
    switch (code_) {
      case OpCode::Compare: return compare();
      case OpCode::Select: return select();
      case OpCode::Cast: return cast();
      case OpCode::Neg:
      case OpCode::Abs:
      case OpCode::Not: return unary();
      case OpCode::Fma: return is(ca_) && !is(cb_) ? copy({b_, a_, op_.operands[2]}) : Value{};
      default: break;
    }
    if (op_.operands.size() != 2) return {};
    if (is_float(dtype_)) return real();
    if (Value value = integer()) return value;
    return reassociate();
  }

 private:
  static bool is(const std::optional<Scalar>& value) { return value.has_value(); }
  bool a_is(int64_t value) const { return ca_ && ca_->i == Scalar::of_int(dtype_, value).i; }
  bool b_is(int64_t value) const { return cb_ && cb_->i == Scalar::of_int(dtype_, value).i; }
  bool b_is_real(double value) const {
    return cb_ && cb_->f == value && std::signbit(cb_->f) == std::signbit(value);
  }
  const Op* a_as(OpCode code) const { return kernel_.def_as(a_, code); }
  Value constant(int64_t value) { return build_.constant(Scalar::of_int(dtype_, value)); }

  // The op again, with its attributes, on other operands.
  Value copy(std::vector<Value> operands) {
    return kernel_.op(build_.emit(code_, std::move(operands), op_.attrs, kernel_.type(op_.result)))
        .result;
  }
  Value emit(Value a, Value b) { return copy({a, b}); }

  Value fold() {
    std::vector<Scalar> constants;
    for (Value operand : op_.operands) {
      auto constant = constant_of(kernel_, operand);
      if (!constant) return {};
      constants.push_back(*constant);
    }
    Scalar value = evaluate(kernel_, op_, constants);
    // A NaN literal would lose the operation that the user can search for.
    if (is_float(value.dtype) && std::isnan(value.f)) return {};
    return build_.constant(value);
  }

  // Float min and max return one of two equal zeros: the order decides which.
  bool may_swap() const {
    bool order_matters = is_float(dtype_) && (code_ == OpCode::Min || code_ == OpCode::Max);
    return !order_matters || (ca_->f != 0 && !std::isnan(ca_->f));
  }

  Value integer() {
    Value zero_or_none{};
    switch (code_) {
      case OpCode::Add: return b_is(0) ? a_ : zero_or_none;
      case OpCode::Sub:
        if (a_ == b_) return constant(0);
        return cb_ ? build_.binary(OpCode::Add, a_, constant(-static_cast<uint64_t>(cb_->i)))
                   : zero_or_none;
      case OpCode::Mul: return b_is(0) ? b_ : b_is(1) ? a_ : zero_or_none;
      case OpCode::FloorDiv: return floor_div();
      case OpCode::FloorMod: return floor_mod();
      case OpCode::Min:
      case OpCode::Max: return extreme();
      case OpCode::And: return a_ == b_ || b_is(-1) ? a_ : b_is(0) ? b_ : zero_or_none;
      case OpCode::Or: return a_ == b_ || b_is(0) ? a_ : b_is(-1) ? b_ : zero_or_none;
      case OpCode::Xor:
        if (a_ == b_) return constant(0);
        if (b_is(-1)) return build_.unary(OpCode::Not, a_);
        return b_is(0) ? a_ : zero_or_none;
      case OpCode::Shl:
      case OpCode::Shr: return b_is(0) || a_is(0) ? a_ : zero_or_none;
      default: return {};
    }
  }

  Value extreme() {
    if (a_ == b_) return a_;
    if (!cb_ || dtype_ == Bool) return {};
    Scalar keeps = code_ == OpCode::Min ? highest(dtype_) : lowest(dtype_);
    Scalar wins = code_ == OpCode::Min ? lowest(dtype_) : highest(dtype_);
    return cb_->i == keeps.i ? a_ : cb_->i == wins.i ? b_ : Value{};
  }

  Value floor_div() {
    if (b_is(1) || a_is(0)) return a_;
    if (b_is(0)) return b_;
    // ⌊⌊x/c⌋/d⌋ = ⌊x/(c·d)⌋ for positive c and d whose product exists in the type.
    const Op* inner = a_as(OpCode::FloorDiv);
    auto c = inner ? constant_int(kernel_, inner->operands[1]) : std::nullopt;
    int64_t product = 0;
    if (!c || !cb_ || *c <= 0 || cb_->i <= 0) return {};
    if (__builtin_mul_overflow(*c, cb_->i, &product)) return {};
    if (wrap_to(dtype_, product) != product) return {};
    return emit(inner->operands[0], constant(product));
  }

  Value floor_mod() {
    if (a_is(0)) return a_;
    if (b_is(1) || b_is(0)) return constant(0);
    const Op* inner = a_as(OpCode::FloorMod);
    if (inner && inner->operands[1] == b_) return a_;
    if (!cb_) return {};
    if (inner && constant_int(kernel_, inner->operands[1]) == cb_->i) return a_;
    // Modulo a power of two, wrapping changes nothing: multiples of it may be dropped.
    if (cb_->i <= 0 || (cb_->i & (cb_->i - 1))) return {};
    auto multiple = [&](const Op* op) {
      auto c = op ? constant_int(kernel_, op->operands[1]) : std::nullopt;
      return c && (*c & (cb_->i - 1)) == 0;
    };
    if (multiple(a_as(OpCode::Mul))) return constant(0);
    if (const Op* sum = a_as(OpCode::Add); multiple(sum)) return emit(sum->operands[0], b_);
    return {};
  }

  Value reassociate() {  // (x ∘ c) ∘ d = x ∘ (c ∘ d)
    if (!commutes(code_) || !cb_) return {};
    const Op* inner = a_as(code_);
    auto c = inner ? constant_of(kernel_, inner->operands[1]) : std::nullopt;
    if (!c) return {};
    return emit(inner->operands[0], build_.constant(evaluate(kernel_, op_, {*c, *cb_})));
  }

  Value real() {
    // x + 0 and the like round, which saturates an infinity of e5m2.
    if (dtype_ == E5M2 && code_ != OpCode::Min && code_ != OpCode::Max) return {};
    switch (code_) {
      case OpCode::Add: return b_is_real(-0.0) ? a_ : Value{};
      case OpCode::Sub: return b_is_real(0.0) ? a_ : Value{};
      case OpCode::Mul: return b_is_real(1.0) ? a_ : Value{};
      case OpCode::Div: return b_is_real(1.0) ? a_ : divide_by_power_of_two();
      case OpCode::Min:
      case OpCode::Max: return a_ == b_ ? a_ : Value{};
      default: return {};
    }
  }

  // x / 2^k and x · 2^−k round the same real number.
  Value divide_by_power_of_two() {
    if (!cb_ || !std::isfinite(cb_->f) || cb_->f == 0) return {};
    int exponent = 0;
    if (std::fabs(std::frexp(cb_->f, &exponent)) != 0.5) return {};
    double reciprocal = 1.0 / cb_->f;
    if (!std::isfinite(reciprocal) || round_to(dtype_, reciprocal) != reciprocal) return {};
    OpId id = build_.emit(OpCode::Mul, {a_, build_.constant(dtype_, reciprocal)}, op_.attrs,
                          Type::scalar(dtype_));
    return kernel_.op(id).result;
  }

  Value unary() {
    if (const Op* same = a_as(code_)) return code_ == OpCode::Abs ? a_ : same->operands[0];
    const Op* negated = code_ == OpCode::Abs ? a_as(OpCode::Neg) : nullptr;
    if (negated && !is_unsigned_int(dtype_)) return copy({negated->operands[0]});
    const Op* compared = a_as(OpCode::Compare);
    if (code_ != OpCode::Not || !compared) return {};
    std::string_view kind = compared->word("kind");
    bool equality = kind == "eq" || kind == "ne";
    // With a NaN both x < y and x ≥ y are false.
    if (is_float(kernel_.type(compared->operands[0]).dtype) && !equality) return {};
    const char* opposite = kind == "eq"   ? "ne"
                           : kind == "ne" ? "eq"
                           : kind == "lt" ? "ge"
                           : kind == "le" ? "gt"
                           : kind == "gt" ? "le"
                                          : "lt";
    return build_.compare(opposite, compared->operands[0], compared->operands[1]);
  }

  Value compare() {
    std::string_view kind = op_.word("kind");
    if (ca_ && !cb_) {
      const char* mirrored = kind == "lt"   ? "gt"
                             : kind == "le" ? "ge"
                             : kind == "gt" ? "lt"
                             : kind == "ge" ? "le"
                             : kind == "eq" ? "eq"
                                            : "ne";
      return build_.compare(mirrored, b_, a_);
    }
    if (a_ == b_) {
      bool strict = kind == "lt" || kind == "gt";
      if (strict || !is_float(dtype_))
        return build_.constant(Scalar::of_int(Bool, !strict && kind != "ne"));
    }
    if (dtype_ == Bool && cb_ && (kind == "eq" || kind == "ne"))
      return (kind == "eq") == (cb_->i != 0) ? a_ : build_.unary(OpCode::Not, a_);
    return {};
  }

  Value select() {
    Value then = op_.operands[1], otherwise = op_.operands[2];
    if (then == otherwise) return then;
    if (ca_) return ca_->i ? then : otherwise;
    if (const Op* inverse = a_as(OpCode::Not)) return copy({inverse->operands[0], otherwise, then});
    auto x = constant_int(kernel_, then), y = constant_int(kernel_, otherwise);
    if (kernel_.type(then).dtype != Bool || !x || !y) return {};
    if (*x == *y) return then;
    return *x ? a_ : build_.unary(OpCode::Not, a_);
  }

  Value cast() {
    DType to = kernel_.type(op_.result).dtype;
    if (to == dtype_) return a_;
    const Op* inner = a_as(OpCode::Cast);
    if (!inner) return {};
    Value source = inner->operands[0];
    DType from = kernel_.type(source).dtype;
    // The middle type holds the number, so only the way of the last conversion may differ: integers
    // wrap, floats saturate.
    bool same_way = is_float(from) == is_float(dtype_) || is_float(to) || lossless(from, to);
    if (!lossless(from, dtype_) || !same_way) return {};
    if (from == E5M2 && to == E5M2) return {};  // the last conversion saturates an infinity
    return from == to ? source : build_.cast(source, to);
  }

  Builder& build_;
  Kernel& kernel_;
  const Op& op_;
  const OpCode code_;
  const Value a_, b_;
  const DType dtype_;  // of the operands
  const std::optional<Scalar> ca_, cb_;
};

}  // namespace

Value simpler(Builder& build, const Op& op) {
  const OpInfo& row = info(op.code);
  if (!row.pure || op.operands.empty() || !build.kernel().type(op.result).is_scalar()) return {};
  return Simplifier(build, op).run();
}

}  // namespace kiln
