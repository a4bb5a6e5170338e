// The kernel being traced on this thread: where ops go, and which values may be used there.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/kernel.h"

namespace kiln {
inline namespace dsl {

// A value of one particular trace; what every name of the language holds.
struct Traced {
  Value value;
  uint64_t trace = 0;       // number of the trace, unique in the process
  const char* kernel = "";  // its name, for messages
};

class Tracer {
 public:
  Tracer(std::string name, Loc loc);
  ~Tracer();
  Tracer(const Tracer&) = delete;

  // The innermost trace of this thread. UserError outside of one.
  static Tracer& current(Loc loc);
  // Where this thread recorded last, for the few operators that cannot know their line.
  static Loc last_loc();

  const Kernel& kernel() const { return kernel_; }
  // Closes the launch that is open and hands the kernel out.
  Kernel finish();

  // Places for ops: pure scalars go anywhere; `what` names the function in messages.
  Builder& scalars(Loc loc);
  Builder& inside_launch(Loc loc, std::string_view what);
  Builder& top_level(Loc loc, std::string_view what);
  // Appends an op inside the launch and checks it.
  void emit(OpCode code, std::vector<Value> operands, Attrs attrs, Loc loc);

  Traced traced(Value value) const { return {value, number_, kernel_name_}; }
  // The value, if it belongs to this kernel and its loop, branch or launch is still open.
  Value use(const Traced& traced, Loc loc);

  // Throws UserError if an op just made breaks a rule of the verifier. Reads are checked when their
  // value is used: an element that is assigned to is not read.
  void check(OpId op) const;

  // Claims a name of the kernel's interface.
  void declare(const std::string& name, std::string_view what, Loc loc);
  // Opens the region of a launch over extents, which are top-level scalars or can be computed
  // there.
  std::vector<Value> open_launch(const std::vector<Value>& extents, int rasterize, int warps,
                                 Loc loc);
  // The op whose region is open; none at the top level.
  OpId innermost() const { return open_.back().op; }
  // True between the braces of a loop or branch.
  bool inside_control() const { return open_.size() > (launch_ ? 2u : 1u); }

 private:
  friend class RegionScope;
  void note_values();
  Value at_top(Value value, Loc loc);

  struct Frame {
    RegionId region;
    OpId op;  // that owns the region; none for the kernel's body
  };
  Kernel kernel_;
  Builder builder_;
  uint64_t number_;
  const char* kernel_name_;
  Loc loc_;
  Tracer* outer_;
  std::vector<Frame> open_;     // from the kernel's body inwards
  std::vector<RegionId> home_;  // by value: the region that holds it
  std::set<std::string> names_;
  std::unique_ptr<class RegionScope> launch_;
};

// Ops go into `region`, one of `op`, until the object dies.
class RegionScope {
 public:
  RegionScope(Tracer& tracer, OpId op, RegionId region);
  ~RegionScope();
  RegionScope(const RegionScope&) = delete;

 private:
  Tracer& tracer_;
  Builder::Scope scope_;
};

}  // namespace dsl
}  // namespace kiln
