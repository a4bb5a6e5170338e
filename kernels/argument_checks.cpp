#include "kernels/argument_checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"

namespace kiln {

bool has_shape(const Memory& tensor, Extents shape) {
  return std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end());
}

void require_rank(const char* what, const Memory& tensor, size_t rank, const char* axes) {
  if (tensor.shape.size() != rank)
    throw UserError(fmt::format("{}: expected shape [{}], got {}", what, axes, str(tensor.shape)));
}

void require_dtype(const char* what, const Memory& tensor, DType dtype) {
  if (tensor.dtype != dtype)
    throw UserError(
        fmt::format("{}: expected dtype {}, got {}", what, name(dtype), name(tensor.dtype)));
}

void require_shape(const char* what, const Memory& tensor, Extents shape) {
  if (!has_shape(tensor, shape))
    throw UserError(
        fmt::format("{}: expected shape {}, got {}", what, str(Shape(shape)), str(tensor.shape)));
}

void require_at_least(const char* what, const Memory& tensor, Extents shape, size_t growing,
                      const char* try_this) {
  bool good = tensor.shape.size() == shape.size();
  for (size_t axis = 0; good && axis < shape.size(); ++axis)
    good = axis + growing < shape.size() ? tensor.shape[axis] == shape.begin()[axis]
                                         : tensor.shape[axis] >= shape.begin()[axis];
  if (!good)
    throw UserError(
        fmt::format("{}: expected at least {}, got {}", what, str(Shape(shape)), str(tensor.shape)),
        try_this);
}

const Memory& required(const char* what, const std::optional<Memory>& tensor) {
  if (!tensor) throw UserError(fmt::format("{}: missing", what));
  return *tensor;
}

void refuse(const char* what, const std::optional<Memory>& tensor, const char* why) {
  if (tensor) throw UserError(fmt::format("{}: given, but the kernel was compiled {}", what, why));
}

}  // namespace kiln
