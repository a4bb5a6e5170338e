// What a lowered kernel does, counted from its text: for people, and for choosing.
#pragma once

#include "ir/kernel.h"

namespace kiln {

struct WorkEstimate {
  double flops = 0;         // of gemms, two a multiplication and addition
  double elements = 0;      // elementwise operations: points of parallels times their ops
  double exponentials = 0;  // of those: exp, log, tanh, …
  double global_read = 0;   // bytes
  double global_written = 0;

  WorkEstimate& operator+=(const WorkEstimate& other);
  WorkEstimate times(double rounds) const;
};

// Of an op alone: what its regions do is not counted.
WorkEstimate estimate_work(const Kernel& kernel, const Op& op);

// Rounds of a loop if its bounds are constants; 0 if they are known only at run time.
int64_t constant_rounds(const Kernel& kernel, const Op& loop);

// Of a region run once: loops of unknown rounds count as one round, both branches of an `if` count.
WorkEstimate estimate_work(const Kernel& kernel, RegionId region);

}  // namespace kiln
