#include "passes/gemm_plan.h"

#include <fmt/format.h>

#include "ir/dtype_rules.h"
#include "ir/layout/reshape.h"

namespace kiln {
namespace {

// An instruction's tile of c.
constexpr int64_t kRows = 16, kColumns = 8;
// The least step along k: what m16n8k8 takes of halves, and what bytes are padded from.
constexpr int64_t kDepth = 8;
static_assert(kDepth == kColumns);  // mma_needs() names both at once

WarpPolicy policy_of(const Op& gemm) {
  const std::string& word = gemm.word("policy");
  return word == "full_row"   ? WarpPolicy::Rows
         : word == "full_col" ? WarpPolicy::Columns
                              : WarpPolicy::Square;
}

// A matrix's layout as that of the operand: stored transposed, axes of extent 1 in front.
Layout as_stored(Layout matrix, const Type& type, bool transposed) {
  if (transposed) matrix = permute_axes(matrix, {1, 0});
  while (matrix.rank() < type.rank()) matrix = insert_axis(matrix, 0);
  return matrix;
}

}  // namespace

GemmShape gemm_shape(const Kernel& kernel, const Op& gemm) {
  const Shape &a = kernel.type(gemm.operands[0]).shape, &c = kernel.type(gemm.operands[2]).shape;
  const int64_t k = gemm.flag("transpose_a") ? a[a.size() - 2] : a.back();
  return {c[c.size() - 2], c.back(), k};
}

WarpGrid gemm_warps(const Kernel& kernel, const Op& gemm, int64_t warps) {
  const GemmShape shape = gemm_shape(kernel, gemm);
  return split_warps(policy_of(gemm), (shape.m + kRows - 1) / kRows,
                     (shape.n + kColumns - 1) / kColumns, warps);
}

MmaSupport mma_support(const Kernel& kernel, const Op& gemm, const GpuTarget& target) {
  const DType dtype = kernel.type(gemm.operands[0]).dtype;
  const GemmShape shape = gemm_shape(kernel, gemm);
  const GemmDTypes* row = gemm_dtypes(dtype, kernel.type(gemm.operands[2]).dtype);
  if (!row || !row->mma) return {{}, std::string(row ? row->why_not_mma : "no gemm takes these")};
  if (shape.m % kRows) return {{}, fmt::format("{} rows are not a multiple of {}", shape.m, kRows)};
  if (shape.n % kColumns)
    return {{}, fmt::format("{} columns are not a multiple of {}", shape.n, kColumns)};
  if (shape.k % kDepth)
    return {{}, fmt::format("the depth of {} is not a multiple of {}", shape.k, kDepth)};
  const bool is_fp8 = dtype == E4M3 || dtype == E5M2;
  return {is_fp8 && !target.has_fp8_mma() ? F16 : dtype, ""};
}

std::string mma_needs() {
  return fmt::format("mma takes a, b of {}, rows a multiple of {}, columns and depth of {}",
                     mma_dtypes_text(), kRows, kColumns);
}

GemmPlan gemm_plan(const Kernel& kernel, const Op& gemm, int64_t warps) {
  const Type &a = kernel.type(gemm.operands[0]), &b = kernel.type(gemm.operands[1]);
  GemmPlan plan;
  plan.shape = gemm_shape(kernel, gemm);
  plan.warps = gemm_warps(kernel, gemm, warps);
  const auto [m, n, k] = plan.shape;
  plan.c = as_stored(mma_accumulator(m, n, plan.warps), kernel.type(gemm.operands[2]), false);
  plan.mma = gemm.word("instruction") == "mma";
  if (!plan.mma) return plan;
  plan.input = size_of(a.dtype) == 1 ? kMma8Bit : kMma16BitK16;
  plan.a = as_stored(mma_operand_a(m, k, plan.input, plan.warps), a, gemm.flag("transpose_a"));
  plan.b = as_stored(mma_operand_b(k, n, plan.input, plan.warps), b, gemm.flag("transpose_b"));
  return plan;
}

}  // namespace kiln
