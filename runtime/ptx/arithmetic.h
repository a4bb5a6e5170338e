// add, sub, mul, … exist for integers and for floats: arithmetic.cpp asks each kind in turn.
#pragma once

#include "runtime/ptx/decoder.h"

namespace kiln::ptx {

// Decode the statement's mnemonic for this type, its modifiers and operands; unknown() if the type
// does not have it.
void decode_integer(Decoder& d, Type type);  // integer.cpp
void decode_float(Decoder& d, Type type);    // floating.cpp: f32, f64
void decode_half(Decoder& d, Type type);     // half.cpp: f16, bf16 and pairs
void decode_mixed(Decoder& d, Type narrow);  // mixed.cpp: f32 with operands of f16 or bf16

}  // namespace kiln::ptx
