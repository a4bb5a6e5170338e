#include "dsl/value.h"

#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <limits>

#include "dsl/math.h"
#include "ir/error.h"

namespace kiln {
inline namespace dsl {
namespace {

std::string text_of(double number) {
  std::string text = fmt::format("{}", number);
  return text.find_first_of(".enai") == text.npos ? text + ".0" : text;
}

// As a program writes it: F16, Bool.
std::string spelled(DType dtype) {
  if (dtype == Bool) return "Bool";
  std::string text(name(dtype));
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

bool fits(int64_t number, DType dtype) {
  if (dtype == U64) return number >= 0;
  return wrap_to(dtype, number) == number;
}

int mantissa_bits(DType dtype) {
  switch (dtype) {
    case E5M2: return 2;
    case E4M3: return 3;
    case BF16: return 7;
    case F16: return 10;
    case F32: return 23;
    default: return 52;
  }
}
int exponent_bits(DType dtype) {
  switch (dtype) {
    case E4M3: return 4;
    case E5M2:
    case F16: return 5;
    case F64: return 11;
    default: return 8;
  }
}

}  // namespace

bool widens(DType from, DType to) {
  if (from == to) return true;
  if (is_float(from) && is_float(to))
    return mantissa_bits(from) <= mantissa_bits(to) && exponent_bits(from) <= exponent_bits(to);
  if (!is_int(from) || !is_int(to)) return false;
  if (is_signed_int(from) && is_unsigned_int(to)) return false;
  return size_of(from) < size_of(to);
}

DType common_dtype(std::string_view what, const Arg& a, const Arg& b) {
  if (a.is_number() && !b.is_number()) return b.dtype();
  if (b.is_number() && !a.is_number()) return a.dtype();
  if (a.is_number() && is_float(a.dtype()) != is_float(b.dtype())) return F32;
  if (widens(a.dtype(), b.dtype())) return b.dtype();
  if (widens(b.dtype(), a.dtype())) return a.dtype();
  throw UserError(a.loc(),
                  fmt::format("{}: operands are {} and {}; cast one of them", what, name(a.dtype()),
                              name(b.dtype())),
                  "cast(x, " + spelled(is_float(b.dtype()) ? b.dtype() : a.dtype()) + ")");
}

Expr::Expr(Value value, Loc loc)
    : traced_(Tracer::current(loc).traced(value)),
      dtype_(Tracer::current(loc).kernel().type(value).dtype) {
  const Tracer& tracer = Tracer::current(loc);
  OpId def = tracer.kernel().def(value);
  if (def && tracer.kernel().op(def).code != OpCode::Load) tracer.check(def);
}

Expr::Expr(const Var& variable, Loc loc) : Expr(variable.read(loc)) {}

Arg::Arg(const Var& variable, Loc loc) : Arg(variable.read(loc), loc) {}

void Arg::too_large() const {
  throw UserError(loc_, "a C++ number is too large for i64", "cast it to a signed type");
}

DType Arg::dtype() const {
  switch (kind_) {
    case Kind::Integer: return fits(integer_, I32) ? I32 : I64;
    case Kind::Floating: return F32;
    case Kind::Boolean: return Bool;
    default: return dtype_;
  }
}

std::string Arg::describe() const {
  switch (kind_) {
    case Kind::Integer: return fmt::format("the C++ number {}", integer_);
    case Kind::Floating: return fmt::format("the C++ number {}", text_of(floating_));
    case Kind::Boolean: return integer_ ? "the C++ value true" : "the C++ value false";
    default: return std::string(name(dtype_));
  }
}

Value Arg::number_as(DType to, std::string_view what) const {
  Builder& builder = Tracer::current(loc_).scalars(loc_);
  if (is_float(to)) {
    if (kind_ == Kind::Boolean)
      throw UserError(loc_, fmt::format("{}: a C++ bool meets {}", what, name(to)),
                      "write a number");
    double rounded = round_to(to, real());
    double limit = round_to(to, std::numeric_limits<double>::max());  // finite where casts saturate
    if (std::isfinite(real()) && (!std::isfinite(rounded) || std::abs(real()) > limit))
      throw UserError(loc_, fmt::format("{}: {} does not fit {}", what, describe(), name(to)),
                      "use a wider dtype");
    if (std::isinf(real()) && !std::isinf(rounded))
      throw UserError(loc_, fmt::format("{}: {} takes no infinity", what, name(to)),
                      "use its largest value");
    return builder.constant(to, real());
  }
  if (kind_ == Kind::Floating)
    throw UserError(loc_, fmt::format("{}: {} meets {}", what, describe(), name(to)),
                    "write an integer, or cast the other operand to a float dtype");
  if (!fits(integer_, to))
    throw UserError(loc_, fmt::format("{}: {} does not fit {}", what, describe(), name(to)),
                    "use a wider dtype");
  return builder.constant(to, integer_);
}

Value Arg::as(DType to, std::string_view what) const {
  if (is_number()) return number_as(to, what);
  Tracer& tracer = Tracer::current(loc_);
  Value value = tracer.use(traced_, loc_);
  if (!widens(dtype_, to))
    throw UserError(loc_, fmt::format("{}: expected {}, got {}", what, name(to), name(dtype_)),
                    fmt::format("cast(x, {}) if that is meant", spelled(to)));
  return tracer.scalars(loc_).cast(value, to);
}

Value Arg::index(std::string_view what) const {
  if (kind_ != Kind::Integer && (is_number() || !is_int(dtype_)))
    throw UserError(loc_, fmt::format("{}: expected an integer, got {}", what, describe()),
                    is_number() ? "write an integer" : "cast(x, I32)");
  return as(I32, what);
}

int64_t Arg::constant(std::string_view what) const {
  Value value = index(what);
  if (auto number = constant_int(Tracer::current(loc_).kernel(), value)) return *number;
  throw UserError(loc_, fmt::format("{} is known only at launch; it must be a C++ number", what),
                  "sizes of tiles and parallel loops are fixed while tracing");
}

Value Arg::stored_as(DType to, std::string_view what) const {
  if (is_number()) return number_as(to, what);
  bool same_kind = (is_float(dtype_) && is_float(to)) || (is_int(dtype_) && is_int(to));
  if (dtype_ != to && !same_kind)
    throw UserError(loc_,
                    fmt::format("{}: the element is {}, the value {}; cast the value", what,
                                name(to), name(dtype_)),
                    fmt::format("cast(x, {})", spelled(to)));
  return Tracer::current(loc_).use(traced_, loc_);
}

Var::Var(DType dtype, Arg value, Loc loc) : dtype_(dtype) {
  Tracer& tracer = Tracer::current(loc);
  Builder& builder = tracer.inside_launch(loc, "Var");
  Value initial = value.stored_as(dtype, "Var");
  builder.loc = loc;
  Value cell = builder.alloc(Space::Fragment, dtype, {});
  tracer.check(tracer.kernel().def(cell));
  builder.store(initial, cell);
  cell_ = tracer.traced(cell);
}

Expr Var::read(Loc loc) const {
  Tracer& tracer = Tracer::current(loc);
  Value cell = tracer.use(cell_, loc);
  return Expr(tracer.inside_launch(loc, "Var").load(cell), loc);
}

Var& Var::operator=(Arg value) & {
  Loc loc = value.loc();
  Tracer& tracer = Tracer::current(loc);
  Value cell = tracer.use(cell_, loc);
  Value stored = value.stored_as(dtype_, "assignment");
  tracer.emit(OpCode::Store, {stored, cell}, {}, loc);
  return *this;
}

Var& Var::update(Expr (*op)(Arg, Arg), const Arg& value) {
  Loc loc = value.loc();
  return *this = Arg(op(Arg(read(loc), loc), value), loc);
}

Var& Var::operator+=(Arg value) & {
  return update(operator+, value);
}
Var& Var::operator-=(Arg value) & {
  return update(operator-, value);
}
Var& Var::operator*=(Arg value) & {
  return update(operator*, value);
}
Var& Var::operator/=(Arg value) & {
  return update(operator/, value);
}
Var& Var::operator%=(Arg value) & {
  return update(operator%, value);
}
Var& Var::operator&=(Arg value) & {
  return update(operator&, value);
}
Var& Var::operator|=(Arg value) & {
  return update(operator|, value);
}
Var& Var::operator^=(Arg value) & {
  return update(operator^, value);
}

}  // namespace dsl
}  // namespace kiln
