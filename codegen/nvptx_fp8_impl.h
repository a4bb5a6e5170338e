// Conversions between fp8 and f32: an instruction from sm_89 on, integer arithmetic before.
#pragma once

#include <array>

#include "codegen/nvptx_builder_impl.h"

namespace kiln::nvptx {

// fp8 values are i8. Rounds once, to nearest even; what is too large, infinity included, becomes
// the largest finite value.
Val f32_to_fp8(Builder& b, Val value, DType to);
Val fp8_to_f32(Builder& b, Val value, DType from);  // exact

// Four fp8 values, in a word, as two words of f16 or bf16 (exact); has_fp8_words: can it be done?
bool has_fp8_words(const Builder& b, DType from, DType to);
std::array<Val, 2> fp8_word_to_halves(Builder& b, Val word, DType from, DType to);

}  // namespace kiln::nvptx
