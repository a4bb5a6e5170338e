// How a gemm is spread over the warps of a block: decided once here, for the pass that gives tiles
// their layouts and for the code generator.
#pragma once

#include "ir/kernel.h"
#include "ir/layout/fragments.h"

namespace kiln {

struct GemmShape {
  int64_t m, n, k;
};
GemmShape gemm_shape(const Kernel& kernel, const Op& gemm);

struct GemmPlan {
  GemmShape shape;
  WarpGrid warps;
  // Of the operands as they are stored: transposed where the op says so, with their leading axes of
  // extent 1. c is the same for `mma` and `fma`. a and b are what mma needs of fragments: for fma
  // (mma == false) they are unused, its a and b are shared tiles.
  Layout c = Layout(0), a = Layout(0), b = Layout(0);
  bool mma = false;
  MmaInput input;  // of full steps along k; a rest of 8 halves takes kMma16BitK8
};

// Of a gemm whose `instruction` is chosen, in a launch of so many warps.
GemmPlan gemm_plan(const Kernel& kernel, const Op& gemm, int64_t warps);

}  // namespace kiln
