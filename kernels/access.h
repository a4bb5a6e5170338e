// Reading bound tensors element by element, for references and checks; blocks that cover a length.
#pragma once

#include <initializer_list>

#include "ir/memory.h"

namespace kiln {

inline const std::byte* element_address(const Memory& memory,
                                        std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  size_t axis = 0;
  for (int64_t i : index) offset += i * memory.strides[axis++];
  return static_cast<const std::byte*>(memory.data) +
         offset * static_cast<int64_t>(size_of(memory.dtype));
}
inline double load_double(const Memory& memory, std::initializer_list<int64_t> index) {
  Scalar value = load_element(memory.dtype, element_address(memory, index));
  return is_float(memory.dtype) ? value.f : static_cast<double>(value.i);
}

inline int64_t load_int(const Memory& memory, std::initializer_list<int64_t> index) {
  return load_element(memory.dtype, element_address(memory, index)).i;
}
// Of numbers that are not negative, rounded up.
inline int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

}  // namespace kiln
