// Scalars of a kernel: `Expr` is a value, `Var` a variable, `Arg` any operand of the language.
#pragma once

#include <string_view>
#include <type_traits>

#include "dsl/tracer.h"

namespace kiln {
inline namespace dsl {

class Var;

template <class T>
concept Number = std::is_arithmetic_v<T>;

// A value: `auto x = a + b` names it, nothing changes it. Cheap to copy.
class [[maybe_unused]] Expr {
 public:
  explicit Expr(Value value, Loc loc);  // of the kernel being traced
  Expr(const Var& variable, Loc loc = Loc::here());
  Expr(const Expr&) = default;

  DType dtype() const { return dtype_; }
  const Traced& traced() const { return traced_; }

  // Viable for rvalues only, so that every assignment to a name meets the sentence below.
  Expr& operator=(const Expr&) && = delete;
  template <class T>
  Expr& operator=(T&&) {
    static_assert(sizeof(T) == 0,
                  "this name is a value and never changes; declare it as Var to assign to it");
    return *this;
  }
  template <class B = bool>
  explicit operator bool() const {
    static_assert(
        sizeof(B) == 0,
        "a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)");
    return false;
  }

 private:
  Traced traced_;
  DType dtype_;
};

// An operand and the place where it was written: overloaded operators cannot take defaulted
// arguments, but the conversion to their parameter can. A C++ number takes the dtype of what it
// meets; alone it is an i32 or f32.
class Arg {
 public:
  Arg(const Expr& value, Loc loc = Loc::here())
      : kind_(Kind::Traced), loc_(loc), traced_(value.traced()), dtype_(value.dtype()) {}
  Arg(const Var& variable, Loc loc = Loc::here());
  template <Number T>
  Arg(T number, Loc loc = Loc::here()) : loc_(loc) {
    if constexpr (std::is_floating_point_v<T>) {
      kind_ = Kind::Floating;
      floating_ = static_cast<double>(number);
    } else {
      kind_ = std::is_same_v<T, bool> ? Kind::Boolean : Kind::Integer;
      if (std::is_unsigned_v<T> && number > static_cast<T>(INT64_MAX)) too_large();
      integer_ = static_cast<int64_t>(number);
    }
  }
  static Arg none() { return Arg(); }  // an operand left out

  Loc loc() const { return loc_; }
  bool present() const { return kind_ != Kind::None; }
  bool is_number() const { return kind_ > Kind::Traced; }
  bool is_integer() const { return kind_ == Kind::Integer; }
  bool is_boolean() const { return kind_ == Kind::Boolean; }
  int64_t integer() const { return integer_; }  // of an integer or bool
  double real() const {
    return kind_ == Kind::Floating ? floating_ : static_cast<double>(integer_);
  }

  DType dtype() const;           // of the value; of a number alone, i32, i64, f32 or bool
  std::string describe() const;  // "f32", "the C++ number 1.5"
  // The operand as a value of `dtype`, widened if that loses nothing; otherwise a UserError that
  // begins with `what`.
  Value as(DType dtype, std::string_view what) const;
  Value value(std::string_view what) const { return as(dtype(), what); }
  Value index(std::string_view what) const;       // as an i32
  int64_t constant(std::string_view what) const;  // UserError unless known while tracing
  // As a value that a store to an element of `dtype` converts: between floats, between integers.
  Value stored_as(DType dtype, std::string_view what) const;

 private:
  enum class Kind : uint8_t { None, Traced, Integer, Floating, Boolean };
  Arg() = default;
  [[noreturn]] void too_large() const;
  Value number_as(DType dtype, std::string_view what) const;

  Kind kind_ = Kind::None;
  Loc loc_;
  kiln::Traced traced_;
  DType dtype_ = I32;
  int64_t integer_ = 0;
  double floating_ = 0;
};

// True if every value of `from` is one of `to` and both are floats, both integers, or equal.
bool widens(DType from, DType to);
// The dtype two operands meet in: equal, or one widened to the other. UserError otherwise.
DType common_dtype(std::string_view what, const Arg& a, const Arg& b);

// A scalar variable: assign to it anywhere, also inside loops and branches. Copying it makes a new
// variable with the value it has there.
class [[maybe_unused]] Var {
 public:
  template <Number T>
  Var(T number, Loc loc = Loc::here()) : Var(Arg(number, loc), loc) {}
  Var(const Expr& value, Loc loc = Loc::here()) : Var(Arg(value, loc), loc) {}
  Var(const Var& other, Loc loc = Loc::here()) : Var(Arg(other, loc), loc) {}
  Var(DType dtype, Arg value, Loc loc = Loc::here());

  DType dtype() const { return dtype_; }
  Expr read(Loc loc = Loc::here()) const;

  Var& operator=(const Var&) && = delete;  // `x = y` goes through Arg, which knows the line
  Var& operator=(Arg value) &;
  Var& operator+=(Arg value) &;
  Var& operator-=(Arg value) &;
  Var& operator*=(Arg value) &;
  Var& operator/=(Arg value) &;
  Var& operator%=(Arg value) &;
  Var& operator&=(Arg value) &;
  Var& operator|=(Arg value) &;
  Var& operator^=(Arg value) &;

  template <class B = bool>
  explicit operator bool() const {
    static_assert(
        sizeof(B) == 0,
        "a traced value has no C++ truth value; use when(cond, ...) or select(cond, a, b)");
    return false;
  }

 private:
  Var& update(Expr (*op)(Arg, Arg), const Arg& value);
  Var(const Arg& value, Loc loc) : Var(value.dtype(), value, loc) {}

  Traced cell_;  // a fragment of rank 0
  DType dtype_;
};

}  // namespace dsl
}  // namespace kiln
