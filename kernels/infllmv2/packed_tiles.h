// A sequence of a packed batch, inside a kernel.
#pragma once

#include "dsl/dsl.h"

namespace kiln::infllmv2 {

struct Packed {
  Expr begin, length;  // no longer than `most`, whatever is given
  Packed(const Tensor& ends, const Expr& b, const Expr& most)
      : begin(ends(b)), length(min(max(ends(b + 1) - ends(b), 0), most)) {}
};

}  // namespace kiln::infllmv2
