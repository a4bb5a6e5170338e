#include "dsl/math.h"

#include <fmt/format.h>

#include <limits>

#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

void require_bool(std::string_view what, const Arg& a) {
  if (a.dtype() != Bool)
    throw UserError(a.loc(), fmt::format("{}: expected bools, got {}", what, a.describe()),
                    "compare it with something");
}

struct Pair {
  Value a, b;
  Builder& builder;
};

Pair agreed(std::string_view what, const Arg& a, const Arg& b) {
  DType dtype = common_dtype(what, a, b);
  Value first = a.as(dtype, what), second = b.as(dtype, what);
  return {first, second, Tracer::current(a.loc()).scalars(a.loc())};
}

Expr binary(OpCode code, const Arg& a, const Arg& b) {
  Pair pair = agreed(info(code).name, a, b);
  return Expr(pair.builder.binary(code, pair.a, pair.b), a.loc());
}

Expr compare(const char* kind, const Arg& a, const Arg& b) {
  Pair pair = agreed("compare", a, b);
  return Expr(pair.builder.compare(kind, pair.a, pair.b), a.loc());
}

Expr unary(OpCode code, const Arg& a) {
  std::string_view what = info(code).name;
  Value value = a.value(what);
  return Expr(Tracer::current(a.loc()).scalars(a.loc()).unary(code, value), a.loc());
}

}  // namespace

Expr operator+(Arg a, Arg b) {
  return binary(OpCode::Add, a, b);
}
Expr operator-(Arg a, Arg b) {
  return binary(OpCode::Sub, a, b);
}
Expr operator*(Arg a, Arg b) {
  return binary(OpCode::Mul, a, b);
}
Expr operator/(Arg a, Arg b) {
  bool ints = is_int(common_dtype("div", a, b));
  return ints ? floordiv(a, b) : binary(OpCode::Div, a, b);
}
Expr operator%(Arg a, Arg b) {
  return floormod(a, b);
}
Expr operator-(Arg a) {
  return unary(OpCode::Neg, a);
}

Expr operator==(Arg a, Arg b) {
  return compare("eq", a, b);
}
Expr operator!=(Arg a, Arg b) {
  return compare("ne", a, b);
}
Expr operator<(Arg a, Arg b) {
  return compare("lt", a, b);
}
Expr operator<=(Arg a, Arg b) {
  return compare("le", a, b);
}
Expr operator>(Arg a, Arg b) {
  return compare("gt", a, b);
}
Expr operator>=(Arg a, Arg b) {
  return compare("ge", a, b);
}

Expr logical_and(Arg a, Arg b) {
  require_bool("&&", a);
  require_bool("&&", b);
  if (b.is_boolean()) return Expr((b.integer() ? a : b).as(Bool, "&&"), a.loc());
  return binary(OpCode::And, a, b);
}
Expr logical_or(Arg a, Arg b) {
  require_bool("||", a);
  require_bool("||", b);
  if (b.is_boolean()) return Expr((b.integer() ? b : a).as(Bool, "||"), a.loc());
  return binary(OpCode::Or, a, b);
}
Expr logical_not(Arg a) {
  require_bool("!", a);
  return unary(OpCode::Not, a);
}

Expr operator&(Arg a, Arg b) {
  return binary(OpCode::And, a, b);
}
Expr operator|(Arg a, Arg b) {
  return binary(OpCode::Or, a, b);
}
Expr operator^(Arg a, Arg b) {
  return binary(OpCode::Xor, a, b);
}
Expr operator<<(Arg a, Arg b) {
  return binary(OpCode::Shl, a, b);
}
Expr operator>>(Arg a, Arg b) {
  return binary(OpCode::Shr, a, b);
}
Expr operator~(Arg a) {
  return unary(OpCode::Not, a);
}

Expr min(Arg a, Arg b) {
  return binary(OpCode::Min, a, b);
}
Expr max(Arg a, Arg b) {
  return binary(OpCode::Max, a, b);
}
Expr abs(Arg a) {
  return unary(OpCode::Abs, a);
}
Expr exp(Arg a) {
  return unary(OpCode::Exp, a);
}
Expr exp2(Arg a) {
  return unary(OpCode::Exp2, a);
}
Expr log(Arg a) {
  return unary(OpCode::Log, a);
}
Expr log2(Arg a) {
  return unary(OpCode::Log2, a);
}
Expr sqrt(Arg a) {
  return unary(OpCode::Sqrt, a);
}
Expr rsqrt(Arg a) {
  return unary(OpCode::Rsqrt, a);
}
Expr tanh(Arg a) {
  return unary(OpCode::Tanh, a);
}
Expr floor(Arg a) {
  return unary(OpCode::Floor, a);
}
Expr ceil(Arg a) {
  return unary(OpCode::Ceil, a);
}
Expr floordiv(Arg a, Arg b) {
  return binary(OpCode::FloorDiv, a, b);
}
Expr floormod(Arg a, Arg b) {
  return binary(OpCode::FloorMod, a, b);
}

Expr ceildiv(Arg a, Arg b) {
  Loc loc = a.loc();
  Arg less = b.is_integer() ? Arg(b.integer() - 1, loc) : Arg(b - Arg(1, loc), loc);
  return floordiv(Arg(a + less, loc), b);
}

Expr fma(Arg a, Arg b, Arg c) {
  const Arg* widest = &a;
  for (const Arg* arg : {&b, &c})
    if (widest->is_number() ||
        (!arg->is_number() && common_dtype("fma", *widest, *arg) == arg->dtype()))
      widest = arg;
  DType dtype = widest->dtype();
  Value x = a.as(dtype, "fma"), y = b.as(dtype, "fma"), z = c.as(dtype, "fma");
  Builder& builder = Tracer::current(a.loc()).scalars(a.loc());
  OpId op = builder.emit(OpCode::Fma, {x, y, z}, {}, Type::scalar(dtype));
  return Expr(builder.kernel().op(op).result, a.loc());
}

Expr cast(Arg a, DType dtype) {
  Value value = a.value("cast");
  return Expr(Tracer::current(a.loc()).scalars(a.loc()).cast(value, dtype), a.loc());
}

Expr infinity(DType dtype, Loc loc) {
  if (!is_float(dtype))
    throw UserError(loc, fmt::format("infinity: {} has none", name(dtype)), "use a float dtype");
  return Expr(Arg(std::numeric_limits<double>::infinity(), loc).as(dtype, "infinity"), loc);
}

Expr select(Arg condition, Arg a, Arg b) {
  DType dtype = common_dtype("select", a, b);
  require_bool("select: the condition", condition);
  if (condition.is_boolean()) {
    const Arg& chosen = condition.integer() ? a : b;
    return Expr(chosen.as(dtype, "select"), a.loc());
  }
  Value c = condition.as(Bool, "select"), x = a.as(dtype, "select"), y = b.as(dtype, "select");
  return Expr(Tracer::current(condition.loc()).scalars(condition.loc()).select(c, x, y),
              condition.loc());
}

}  // namespace dsl
}  // namespace kiln
