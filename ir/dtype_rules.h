// Which dtypes ops take: one table for the verifier and its messages, for the choice of
// instructions, and for the tests that walk it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/dtype.h"

namespace kiln {

struct GemmDTypes {
  DType operands;     // of a and b
  DType accumulator;  // of c
  // mma.sync multiplies them as they are: 8-bit floats from sm_89 on, below as f16. Else why not.
  bool mma;
  std::string_view why_not_mma;
  bool wgmma;  // so does wgmma here
};
// What a gemm takes, every pair that is legal.
std::span<const GemmDTypes> gemm_dtypes();
const GemmDTypes* gemm_dtypes(DType operands, DType accumulator);  // null: illegal
// "c of f32 (a, b of f16, …), f64 (f64) or i32 (i8, u8)"
std::string gemm_dtypes_text();
std::string mma_dtypes_text();  // "f16, bf16, … or u8": of a and b
std::string wgmma_dtypes_text();

// and, or, xor: of bits, not of numbers.
bool is_bitwise(std::string_view kind);
// Of atomics: the integers of 4 and 8 bytes, and the floats if the kind is not bitwise.
bool atomic_takes(std::string_view kind, DType dtype);

std::string words_or(std::span<const std::string> words);  // "a, b or c"

// Those for which holds(dtype), in words: "i32, u32 or u64".
template <class Holds>
std::string dtypes_text(Holds&& holds) {
  std::string found[std::size(kAllDTypes)];
  size_t count = 0;
  for (DType dtype : kAllDTypes)
    if (holds(dtype)) found[count++] = name(dtype);
  return words_or({found, count});
}

}  // namespace kiln
