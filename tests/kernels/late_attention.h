// The hand-written last stage of block-sparse attention (tests/files/late) on one problem.
#pragma once

#include "runtime/runtime.h"
#include "tests/kernels/attention_case.h"

namespace kiln::test {

// For AttentionCase: f16, head dim 128, lists of 128-blocks, causal.
AttentionConfig late_config();

// The tensors of a case as the kernel takes them, with rows of NaN behind every head.
class LateAttention {
 public:
  explicit LateAttention(AttentionCase& one);  // drops future blocks from its lists
  LateAttention(const LateAttention&) = delete;

  Arguments arguments(int64_t ctas);
  // Moves what the kernel wrote into the case, and CHECKs it against float64 and that nothing else
  // was written.
  void check();

 private:
  struct Spaced {  // an array with the tails, and the tensor within
    Array array;
    Memory memory;
  };
  static Spaced spaced(const Array& dense);

  AttentionCase& one_;
  Spaced q_, k_, v_, o_;
};

}  // namespace kiln::test
