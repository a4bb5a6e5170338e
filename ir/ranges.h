// Bounds of integer scalars, from constants and loop bounds: which accesses need no check.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "ir/kernel.h"

namespace kiln {

struct Interval {
  int64_t low, high;  // both included
};

class Ranges {
 public:
  explicit Ranges(const Kernel& kernel);
  Interval of(Value value);  // of an integer or bool scalar

 private:
  Interval compute(Value value);
  Interval of_op(const Op& op, Interval all);

  const Kernel& kernel_;
  std::unordered_map<uint32_t, OpId> owner_;  // of a region's argument: the op of the region
  std::unordered_map<uint32_t, Interval> known_;
};

}  // namespace kiln
