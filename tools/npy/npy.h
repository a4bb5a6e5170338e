// NumPy's .npy files (formats 1, 2 and 3).
#pragma once

#include <string>
#include <string_view>

#include "runtime/array.h"

namespace kiln {

// Reads f2 f4 f8, i1…i8, u1…u8, bool, and V2 as bf16 (what ml_dtypes writes); Fortran order and big
// endian are converted. UserError naming the file, what was expected and what it holds.
Array read_npy(const std::string& path);

// The same from the bytes of a file; `name` stands for it in messages.
Array parse_npy(std::string_view bytes, const std::string& name);

// Format 1.0, C order, little endian; bf16 as V2, fp8 as u1. Replaces the file; UserError if it
// cannot.
void write_npy(const std::string& path, const Array& array);
std::string npy_bytes(const Array& array);

}  // namespace kiln
