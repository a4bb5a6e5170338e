#include "kernels/argument_checks.h"

#include <fmt/format.h>

#include "ir/error.h"

namespace kiln {

void refuse_rank(const char* what, const Memory& tensor, const char* axes) {
  throw UserError(fmt::format("{}: expected shape [{}], got {}", what, axes, str(tensor.shape)));
}

void refuse_dtype(const char* what, const Memory& tensor, DType dtype) {
  throw UserError(
      fmt::format("{}: expected dtype {}, got {}", what, name(dtype), name(tensor.dtype)));
}

void refuse_shape(const char* what, const Memory& tensor, Extents shape) {
  throw UserError(
      fmt::format("{}: expected shape {}, got {}", what, str(Shape(shape)), str(tensor.shape)));
}

void refuse_less(const char* what, const Memory& tensor, Extents shape, const char* try_this) {
  throw UserError(
      fmt::format("{}: expected at least {}, got {}", what, str(Shape(shape)), str(tensor.shape)),
      try_this);
}

void refuse_missing(const char* what) {
  throw UserError(fmt::format("{}: missing", what));
}

void refuse_given(const char* what, const char* why) {
  throw UserError(fmt::format("{}: given, but the kernel was compiled {}", what, why));
}

}  // namespace kiln
