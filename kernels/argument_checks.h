// What library calls check of their arguments beyond a kernel's signature. What is right costs a
// few comparisons, here in the header; else a UserError, made out of line, names the argument, what
// was expected and what came.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>

#include "ir/interp.h"

namespace kiln {

using Extents = std::initializer_list<int64_t>;

[[noreturn, gnu::cold]] void refuse_rank(const char* what, const Memory& tensor, const char* axes);
[[noreturn, gnu::cold]] void refuse_dtype(const char* what, const Memory& tensor, DType dtype);
[[noreturn, gnu::cold]] void refuse_shape(const char* what, const Memory& tensor, Extents shape);
[[noreturn, gnu::cold]] void refuse_less(const char* what, const Memory& tensor, Extents shape,
                                         const char* try_this);
[[noreturn, gnu::cold]] void refuse_missing(const char* what);
[[noreturn, gnu::cold]] void refuse_given(const char* what, const char* why);

inline bool has_shape(const Memory& tensor, Extents shape) {
  if (tensor.shape.size() != shape.size()) return false;
  const int64_t* extent = tensor.shape.data();
  for (int64_t expected : shape)
    if (*extent++ != expected) return false;
  return true;
}
inline void require_rank(const char* what, const Memory& tensor, size_t rank, const char* axes) {
  if (tensor.shape.size() != rank) refuse_rank(what, tensor, axes);
}
inline void require_dtype(const char* what, const Memory& tensor, DType dtype) {
  if (tensor.dtype != dtype) refuse_dtype(what, tensor, dtype);
}
inline void require_shape(const char* what, const Memory& tensor, Extents shape) {
  if (!has_shape(tensor, shape)) refuse_shape(what, tensor, shape);
}
// The first axes exactly, the last `growing` ones at least.
inline void require_at_least(const char* what, const Memory& tensor, Extents shape, size_t growing,
                             const char* try_this) {
  if (tensor.shape.size() != shape.size()) refuse_less(what, tensor, shape, try_this);
  const int64_t* extent = tensor.shape.data();
  size_t left = shape.size();
  for (int64_t expected : shape) {
    const bool good = left-- > growing ? *extent == expected : *extent >= expected;
    if (!good) refuse_less(what, tensor, shape, try_this);
    ++extent;
  }
}
inline const Memory& required(const char* what, const std::optional<Memory>& tensor) {
  if (!tensor) refuse_missing(what);
  return *tensor;
}
inline void refuse(const char* what, const std::optional<Memory>& tensor, const char* why) {
  if (tensor) refuse_given(what, why);
}
// Given if and only if it is `wanted`, which is returned.
inline bool present(const char* what, const std::optional<Memory>& tensor, bool wanted) {
  wanted ? void(required(what, tensor)) : refuse(what, tensor, "without it");
  return wanted;
}
inline const Memory* given(const std::optional<Memory>& tensor) {
  return tensor ? &*tensor : nullptr;
}

}  // namespace kiln
