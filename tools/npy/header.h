// The header of a .npy file: a Python dict with the keys descr, fortran_order and shape.
#pragma once

#include <string>
#include <string_view>

#include "ir/type.h"

namespace kiln {

struct NpyHeader {
  DType dtype = F32;
  bool big_endian = false;
  bool fortran_order = false;
  Shape shape;
  size_t data_offset = 0;
};

// Reads magic, version and dict; the extents are not negative and their byte count fits in an
// int64. UserError naming `name` otherwise.
NpyHeader parse_npy_header(std::string_view bytes, const std::string& name);

// Magic, version 1.0 and the dict, padded to a multiple of 64 bytes.
std::string format_npy_header(DType dtype, const Shape& shape);

}  // namespace kiln
