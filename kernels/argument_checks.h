// What library calls check of their arguments beyond a kernel's signature. Nothing is allocated for
// what is right; else a UserError names the argument, what was expected and what came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "ir/interp.h"

namespace kiln {

using Extents = std::initializer_list<int64_t>;

bool has_shape(const Memory& tensor, Extents shape);
void require_rank(const char* what, const Memory& tensor, size_t rank, const char* axes);
void require_dtype(const char* what, const Memory& tensor, DType dtype);
void require_shape(const char* what, const Memory& tensor, Extents shape);
// The first axes exactly, the last `growing` ones at least.
void require_at_least(const char* what, const Memory& tensor, Extents shape, size_t growing,
                      const char* try_this);
const Memory& required(const char* what, const std::optional<Memory>& tensor);
void refuse(const char* what, const std::optional<Memory>& tensor, const char* why);

inline const Memory* given(const std::optional<Memory>& tensor) {
  return tensor ? &*tensor : nullptr;
}

}  // namespace kiln
