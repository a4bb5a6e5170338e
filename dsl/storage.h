// What holds elements: tensors, tiles and parts of them; and the elements themselves.
#pragma once

#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dsl/value.h"
#include "ir/type.h"

namespace kiln {
inline namespace dsl {

// An axis of a part: `n` positions from `start`, which may be traced; n is a C++ number.
class Span {
 public:
  Span(Arg start, Arg length) : start_(start), length_(length) {}
  const Arg& start() const { return start_; }
  const Arg& length() const { return length_; }

 private:
  Arg start_, length_;
};
inline Span span(Arg start, Arg n) {
  return Span(start, n);
}

struct All {};
inline constexpr All all{};  // the whole axis

template <class T>
inline constexpr bool kIsRange = std::is_same_v<T, Span> || std::is_same_v<T, All>;
template <class T>
concept AxisIndex =
    kIsRange<T> || Number<T> || std::is_base_of_v<Expr, T> || std::is_same_v<T, Var>;

// One axis of `s(…)`.
struct Axis {
  Arg start;
  Arg length;  // of a range that is not the whole axis
  enum class Kind : uint8_t { One, Span, All } kind;

  template <AxisIndex T>
  static Axis of(const T& index, Loc loc) {
    if constexpr (std::is_same_v<T, All>) {
      return {Arg(0, loc), Arg::none(), Kind::All};
    } else if constexpr (std::is_same_v<T, Span>) {
      return {index.start(), index.length(), Kind::Span};
    } else {
      return {Arg(index, loc), Arg::none(), Kind::One};
    }
  }
};

class Element;
class View;

// A tensor, tile or view. `s(i, j)` with an integer for every axis is an element; with `all` or
// `span(start, n)` on some axis it is a view.
class Storage {
 public:
  const Traced& traced() const { return traced_; }
  const Type& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  DType dtype() const { return type_.dtype; }

  // Viable for rvalues only, so that every assignment to a name meets the sentence below.
  Storage(const Storage&) = default;
  Storage& operator=(const Storage&) && = delete;
  template <class T>
  Storage& operator=(T&&) {
    static_assert(sizeof(T) == 0,
                  "a tile or tensor is storage and stays what it is; use copy(source, destination) "
                  "or fill(destination, value)");
    return *this;
  }

  template <class... I>
  using Part = std::conditional_t<(kIsRange<I> || ...), View, Element>;

  template <AxisIndex A>
  Part<A> operator()(const A& a, Loc loc = Loc::here()) const {
    return Part<A>(*this, {Axis::of(a, loc)}, loc);
  }
  template <AxisIndex A, AxisIndex B>
  Part<A, B> operator()(const A& a, const B& b, Loc loc = Loc::here()) const {
    return Part<A, B>(*this, {Axis::of(a, loc), Axis::of(b, loc)}, loc);
  }
  template <AxisIndex A, AxisIndex B, AxisIndex C>
  Part<A, B, C> operator()(const A& a, const B& b, const C& c, Loc loc = Loc::here()) const {
    return Part<A, B, C>(*this, {Axis::of(a, loc), Axis::of(b, loc), Axis::of(c, loc)}, loc);
  }
  template <AxisIndex A, AxisIndex B, AxisIndex C, AxisIndex D>
  Part<A, B, C, D> operator()(const A& a, const B& b, const C& c, const D& d,
                              Loc loc = Loc::here()) const {
    return Part<A, B, C, D>(
        *this, {Axis::of(a, loc), Axis::of(b, loc), Axis::of(c, loc), Axis::of(d, loc)}, loc);
  }
  template <AxisIndex A, AxisIndex B, AxisIndex C, AxisIndex D, AxisIndex E>
  Part<A, B, C, D, E> operator()(const A& a, const B& b, const C& c, const D& d, const E& e,
                                 Loc loc = Loc::here()) const {
    return Part<A, B, C, D, E>(
        *this,
        {Axis::of(a, loc), Axis::of(b, loc), Axis::of(c, loc), Axis::of(d, loc), Axis::of(e, loc)},
        loc);
  }
  template <AxisIndex A, AxisIndex B, AxisIndex C, AxisIndex D, AxisIndex E, AxisIndex F>
  Part<A, B, C, D, E, F> operator()(const A& a, const B& b, const C& c, const D& d, const E& e,
                                    const F& f, Loc loc = Loc::here()) const {
    return Part<A, B, C, D, E, F>(*this,
                                  {Axis::of(a, loc), Axis::of(b, loc), Axis::of(c, loc),
                                   Axis::of(d, loc), Axis::of(e, loc), Axis::of(f, loc)},
                                  loc);
  }

 protected:
  Storage(Value value, Loc loc);

 private:
  Traced traced_;
  Type type_;
};

// A rectangular part; reads and writes go to its base. It may stick out when its start is traced:
// what is outside reads as the pad value and is not written.
class View : public Storage {
 public:
  View(const Storage& base, const std::vector<Axis>& axes, Loc loc);
  View(Value view, Loc loc) : Storage(view, loc) {}
  View(const View&) = default;
  using Storage::operator=;
};

// Named mutable storage of static shape, on chip.
class Tile : public Storage {
 public:
  Tile(Value tile, Loc loc) : Storage(tile, loc) {}
  Tile(const Tile&) = default;
  using Storage::operator=;
};

// Global memory bound by name at launch.
class Tensor : public Storage {
 public:
  Tensor(Value tensor, Loc loc) : Storage(tensor, loc) {}
  Tensor(const Tensor&) = default;
  using Storage::operator=;
};

// The value of an element, read where it is written down; or, left of an assignment, the element.
class [[maybe_unused]] Element : public Expr {
 public:
  Element(const Storage& base, const std::vector<Axis>& axes, Loc loc);
  Element(const Element&) = default;

  void operator=(Arg value) && { store(value); }
  void operator=(const Element& value) && { store(Arg(value, value.loc_)); }
  void operator+=(Arg value) &&;
  void operator-=(Arg value) &&;
  void operator*=(Arg value) &&;
  void operator/=(Arg value) &&;
  void operator%=(Arg value) &&;
  void operator&=(Arg value) &&;
  void operator|=(Arg value) &&;
  void operator^=(Arg value) &&;
  // dsl/atomic.h
  Expr atomic(const char* kind, const Arg& value, Loc loc) const;
  template <class T>
  void operator=(T&&) & {
    static_assert(sizeof(T) == 0,
                  "this name is a value and never changes; declare it as Var to assign to it, or "
                  "assign to the element: tile(i, j) = ...");
  }

 private:
  struct Read {
    Value value, base;
    std::vector<Value> index;
  };
  static Read read(const Storage& base, const std::vector<Axis>& axes, Loc loc);
  Element(Read read, Loc loc);
  void store(const Arg& value) const;
  void update(Expr (*op)(Arg, Arg), const Arg& value) const;

  Traced base_;
  std::vector<Value> index_;
  DType element_;
  Loc loc_;
};

// Storage of a block, alive while the loop, branch or launch it is in runs; contents undefined.
Tile alloc_shared(const std::vector<Arg>& extents, DType dtype, Loc loc = Loc::here());
Tile alloc_fragment(const std::vector<Arg>& extents, DType dtype, Loc loc = Loc::here());
// A small array (1 to 4 axes, at most 64 elements) whose elements are read and assigned to one by
// one, at any indices: the block's, or in a parallel each point's own. Points read the block's too.
Tile alloc_local(const std::vector<Arg>& extents, DType dtype, Loc loc = Loc::here());

// The extents, all of them known while tracing.
Shape static_shape(const std::vector<Arg>& extents, std::string_view what);

}  // namespace dsl
}  // namespace kiln
