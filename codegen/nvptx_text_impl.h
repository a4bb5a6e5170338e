// What LLVM's PTX needs before ptxas may have it.
#pragma once

#include <string>

namespace kiln::nvptx {

// LLVM flushes halves where f32 ones are flushed. For bf16 PTX has no such modifier (PTX ISA, setp,
// min, max, fma); of f16 it would lose what matters: 6e-5 is subnormal. So both go.
std::string without_half_flushes(std::string ptx);

// Minima and maxima of 16-bit integers, made of those of 32 bits. Of `max.u16` and a comparison of
// its result with one of its operands ptxas 13.0 makes one VIMNMX.U16x2 for sm_90 and later, both
// predicates of which it gives one register: the comparison is then that of the unused upper
// halves, and true. tests/codegen/nvptx_text_test.cpp has the program.
std::string with_wide_minima(const std::string& ptx);

}  // namespace kiln::nvptx
