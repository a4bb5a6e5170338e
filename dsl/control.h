// Traced loops and branches. A loop's body runs once, while tracing; C++ loops and branches over
// C++ values unroll and specialise instead.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "dsl/schedule.h"
#include "dsl/storage.h"

namespace kiln {
inline namespace dsl {

// An op with a region per open range-for. Noticing that the body was left early is its work.
class LoopBase {
 public:
  LoopBase(OpCode code, std::vector<Value> operands, Attrs attrs, size_t indices, Loc loc);
  // Throws UserError if the body was left by break, return or goto; never while unwinding.
  ~LoopBase() noexcept(false);
  LoopBase(const LoopBase&) = delete;

  void open();
  void close();
  bool is_open() const { return scope_.has_value(); }
  Expr index(size_t axis) const { return Expr(indices_[axis], loc_); }

 private:
  OpCode code_;
  std::vector<Value> operands_;
  Attrs attrs_;
  size_t count_;
  Loc loc_;
  int exceptions_;  // in flight when the loop was made
  std::vector<Value> indices_;
  std::optional<RegionScope> scope_;
};

// The range of `for (auto i : …)`, or of `for (auto [i, j] : …)` if N > 1.
template <size_t N>
class [[nodiscard]] Loop : public LoopBase {
 public:
  using LoopBase::LoopBase;
  struct End {};
  class Iterator {
   public:
    explicit Iterator(Loop& loop) : loop_(loop) {}
    auto operator*() const {
      if constexpr (N == 1) {
        return loop_.index(0);
      } else {
        return indices(std::make_index_sequence<N>());
      }
    }
    void operator++() { loop_.close(); }
    bool operator!=(End) const { return loop_.is_open(); }

   private:
    template <size_t... Axis>
    std::array<Expr, N> indices(std::index_sequence<Axis...>) const {
      return {loop_.index(Axis)...};
    }
    Loop& loop_;
  };
  Iterator begin() {
    open();
    return Iterator(*this);
  }
  End end() { return {}; }
};

// begin, begin + step, … below end.
Loop<1> serial(Arg end, Loc loc = Loc::here());
Loop<1> serial(Arg begin, Arg end, Loc loc = Loc::here());
Loop<1> serial(Arg begin, Arg end, Arg step, Loc loc = Loc::here());

// A serial loop whose bounds are C++ numbers and whose body is repeated in the code.
Loop<1> unroll(Arg end, Loc loc = Loc::here());
Loop<1> unroll(Arg begin, Arg end, Loc loc = Loc::here());
Loop<1> unroll(Arg begin, Arg end, Arg step, Loc loc = Loc::here());

// A serial loop that asks for its copies from tensors to be fetched `stages` deep ahead.
struct PipelineOptions {
  int stages = 2;
  Schedule schedule = Schedule::Auto;
};
Loop<1> pipelined(Arg end, PipelineOptions options = {}, Loc loc = Loc::here());
Loop<1> pipelined(Arg begin, Arg end, PipelineOptions options = {}, Loc loc = Loc::here());

// The set entries of a row: of bool or i8, the positions that are not 0; of i32, the listed
// indices, each once, negative ones skipped. The row is a view with one axis that is not 1.
struct SelectedOptions {
  Arg limit = Arg::none();  // indices at or above it are skipped
  Arg count = Arg::none();  // of a list: only its first `count` entries
  int stages = 2;
  bool ordered = false;  // otherwise in unspecified order
  Schedule schedule = Schedule::Auto;
};
Loop<1> selected(const Storage& row, SelectedOptions options = {}, Loc loc = Loc::here());

// Every point of a box of 1 to 4 extents, in any order; iterations are independent. Fragments are
// indexed by the loop's own indices.
Loop<1> parallel(Arg a, Loc loc = Loc::here());
Loop<2> parallel(Arg a, Arg b, Loc loc = Loc::here());
Loop<3> parallel(Arg a, Arg b, Arg c, Loc loc = Loc::here());
Loop<4> parallel(Arg a, Arg b, Arg c, Arg d, Loc loc = Loc::here());

// An op whose regions are written as C++ functions: a branch, a loop with exits, an exit.
class Branch {
 public:
  // On a traced bool that is the same for the whole block.
  Branch(const Arg& condition, Loc loc) : Branch(OpCode::If, "when", condition, loc) {}
  static Branch exit(const Arg& condition, Loc loc);
  static Branch loop(Loc loc);
  // Opens the next region: of `when` first the one for true, then the one for false.
  RegionScope region();
  void require_exit() const;  // of a loop whose body is complete

 private:
  Branch(OpCode code, const char* what, const Arg& condition, Loc loc);
  Tracer& tracer_;
  OpId op_;
  Loc loc_;
};

// Runs `then` where the condition holds, else `otherwise`. A C++ bool decides while tracing.
template <class Then, class Otherwise>
void when(Arg condition, Then&& then, Otherwise&& otherwise, Loc loc = Loc::here()) {
  if (condition.is_boolean()) {
    condition.integer() ? then() : otherwise();
    return;
  }
  Branch branch(condition, loc);
  {
    RegionScope scope = branch.region();
    then();
  }
  RegionScope scope = branch.region();
  otherwise();
}
template <class Then>
void when(Arg condition, Then&& then, Loc loc = Loc::here()) {
  if (condition.is_boolean()) {
    if (condition.integer()) then();
    return;
  }
  Branch branch(condition, loc);
  RegionScope scope = branch.region();
  then();
}

// Runs the body again and again until an exit_if directly in it holds: not one in a branch or loop
// inside. What changes from round to round is kept in Vars and tiles.
template <class Body>
void loop(Body&& body, Loc loc = Loc::here()) {
  Branch branch = Branch::loop(loc);
  {
    RegionScope scope = branch.region();
    body();
  }
  branch.require_exit();
}

// Ends the loop where the condition, the same for the whole block, holds; `tail` runs before that.
template <class Tail>
void exit_if(Arg condition, Tail&& tail, Loc loc = Loc::here()) {
  Branch branch = Branch::exit(condition, loc);
  RegionScope scope = branch.region();
  tail();
}
inline void exit_if(Arg condition, Loc loc = Loc::here()) {
  exit_if(
      condition, [] {}, loc);
}

// Runs the body for as long as the condition, a function that gives a bool, holds before it.
template <class Condition, class Body>
void while_(Condition&& condition, Body&& body, Loc loc = Loc::here()) {
  loop(
      [&] {
        exit_if(!Expr(condition()), loc);
        body();
      },
      loc);
}

}  // namespace dsl
}  // namespace kiln
