// 32-bit registers of the machine: elements packed into them, and their ways across a warp.
#pragma once

#include "codegen/nvptx_builder_impl.h"

namespace kiln::nvptx {

// How many elements of a dtype share a 32-bit register; 1 if they are as large or larger.
constexpr int64_t per_word(DType dtype) {
  return size_of(dtype) < 4 ? 4 / static_cast<int64_t>(size_of(dtype)) : 1;
}
// per_word elements as an i32, the first in the low bits. Two halves that were just rounded from
// f32 are rounded and packed by one instruction.
Val pack_word(Builder& b, std::span<const Val> elements, DType dtype);
Values unpack_word(Builder& b, Val word, DType dtype);

// The value of lane ^ mask, or of lane `source`, of any element type. All lanes take part.
Val shuffle_xor(Builder& b, Val value, int mask);
Val shuffle_from(Builder& b, Val value, Val source);

}  // namespace kiln::nvptx
