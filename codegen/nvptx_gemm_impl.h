// Parts of a gemm's emission.
#pragma once

#include "codegen/nvptx_emit_impl.h"
#include "passes/gemm_plan.h"

namespace kiln::nvptx {

// One operand of mma.sync over a part of k: the 32-bit registers of the instructions, loaded when
// first asked for (ldmatrix where it can, else words, else elements), and zero where the last step
// reaches beyond k.
class MmaOperand {
 public:
  // `part` is the layout of the part, as the operand is stored; `k_axis` its axis of k, which
  // begins at `begin`. A fragment operand is laid out as `whole`.
  MmaOperand(Emitter& emitter, Value storage, const Layout& whole, const Layout& part, int k_axis,
             int64_t begin);
  Val word(int64_t index);

 private:
  std::function<Values(int64_t)> from_fragment(const Fragment& fragment, const Layout& whole,
                                               int k_axis, int64_t begin);
  std::function<Values(int64_t)> from_shared(const Place& place, int k_axis);
  std::function<Values(int64_t)> by_matrices(const Place& place);
  std::function<Values(int64_t)> by_words(const Place& place, int k_axis);
  std::function<Values(int64_t)> by_elements(const Place& place);
  Val masked(Val word, int64_t index);

  Emitter& e;
  Builder& b;
  Layout part_;
  DType dtype_;
  int64_t group_ = 1;  // words that load_ gives at once
  std::function<Values(int64_t)> load_;
  Values words_;
};

// The part of a view that begins at index `begin` of an axis and has `size` elements of it, all
// inside the view.
Place part_of(Builder& b, Place place, int axis, Val begin, int64_t size);

// c += a · b by mma.sync, and by multiplication and addition of single elements; c's registers in
// and out.
Values mma_gemm(Emitter& e, const Op& op, const GemmPlan& plan, Values c);
Values fma_gemm(Emitter& e, const Op& op, const GemmPlan& plan, Values c);

}  // namespace kiln::nvptx
