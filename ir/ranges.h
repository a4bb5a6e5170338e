// Bounds of integer scalars, from constants, loops and conditions: which accesses need no check.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "ir/kernel.h"

namespace kiln {

struct Interval {
  int64_t low, high;  // both included
};

class Ranges {
 public:
  using Known = std::unordered_map<uint32_t, Interval>;

  explicit Ranges(const Kernel& kernel);
  Interval of(Value value);                             // of an integer or bool scalar
  void narrow(Value value, int64_t low, int64_t high);  // as is known from elsewhere
  // As it is where a condition holds: what is asked from now on, until the map that this returns is
  // given back.
  Known assume(Value condition);
  void restore(Known before) { known_ = std::move(before); }

 private:
  void narrow(Value condition);
  Interval compute(Value value);
  Interval of_op(const Op& op, Interval all);

  const Kernel& kernel_;
  std::unordered_map<uint32_t, OpId> owner_;  // of a region's argument: the op of the region
  Known known_;
};

}  // namespace kiln
