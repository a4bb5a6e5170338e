// How a gemm is spread over the warps of a block: decided once here, for the pass that gives tiles
// their layouts and for the code generator.
#pragma once

#include <optional>
#include <string>

#include "ir/kernel.h"
#include "ir/layout/fragments.h"
#include "passes/gpu_target.h"

namespace kiln {

struct GemmShape {
  int64_t m, n, k;
};
GemmShape gemm_shape(const Kernel& kernel, const Op& gemm);

// How `warps` warps share the rows and columns of c, as the op's policy says.
WarpGrid gemm_warps(const Kernel& kernel, const Op& gemm, int64_t warps);

// With which dtype of a and b mma.sync can do a gemm: their own, or f16 for 8-bit floats that the
// target's mma does not take (f16 holds all of them). None: `why_not` says why, in words.
struct MmaSupport {
  std::optional<DType> operands;
  std::string why_not;
};
MmaSupport mma_support(const Kernel& kernel, const Op& gemm, const GpuTarget& target);

std::string mma_needs();  // all of it, in words: "mma takes a, b of f16, …"

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
