// Rules of arg_reduce, cumsum and sort.
#include <fmt/format.h>

#include "ir/verify_impl.h"

namespace kiln {
namespace {

void require_numbers(const Law& law, const Op& op, size_t operand) {
  const Type& type = law.type(op.operands[operand]);
  if (type.dtype == Bool)
    law.fail(op,
             fmt::format("{}: expected numbers, got {}", operand_name(op, operand), brief(type)),
             "copy it to a tile of i32 first");
}

void require_dtype(const Law& law, const Op& op, size_t operand, DType dtype,
                   const std::string& hint) {
  const Type& type = law.type(op.operands[operand]);
  if (type.dtype != dtype)
    law.fail(
        op,
        fmt::format("{}: expected {}, got {}", operand_name(op, operand), name(dtype), brief(type)),
        hint);
}

void require_shape(const Law& law, const Op& op, size_t operand, const Shape& shape,
                   const std::string& because) {
  const Shape& got = law.type(op.operands[operand]).shape;
  if (got != shape)
    law.fail(op,
             fmt::format("{}: expected {}, got {}: {}", operand_name(op, operand), str(shape),
                         str(got), because),
             "a tile of that shape");
}

void check_arg_reduce(const Law& law, const Op& op) {
  require_reduced(law, op, 1, law.type(op.operands[0]), require_dim(law, op, 0));
  require_dtype(law, op, 1, I32, "it holds positions");
}

void check_cumsum(const Law& law, const Op& op) {
  const Type &from = law.type(op.operands[0]), &to = law.type(op.operands[1]);
  require_dim(law, op, 0);
  require_shape(law, op, 1, from.shape, fmt::format("the source is {}", str(from.shape)));
  if (from.dtype != to.dtype && !(is_float(from.dtype) && is_float(to.dtype)))
    require_dtype(law, op, 1, from.dtype, "copy the source to a tile of the other dtype first");
}

void check_sort(const Law& law, const Op& op) {
  const Type &keys = law.type(op.operands[0]), &order = law.type(op.operands[1]);
  const auto dim = static_cast<size_t>(require_dim(law, op, 0));
  const std::string because = fmt::format("the keys are {}, dim {}", str(keys.shape), dim);
  const bool fits = order.rank() == keys.rank() && order.shape[dim] <= keys.shape[dim];
  Shape first = keys.shape;
  if (fits) first[dim] = order.shape[dim];
  if (order.shape != first)
    law.fail(op,
             fmt::format("'order': expected {}, or fewer on axis {}, got {}: {}", str(keys.shape),
                         dim, str(order.shape), because),
             "results have the keys' shape, or fewer on that axis: the first ones");
  DType dtype = I32;
  std::string hint = "without values it holds positions";
  if (op.operand(3)) {
    require_on_chip(law, op, 3);
    require_shape(law, op, 3, keys.shape, because);
    dtype = law.type(op.operands[3]).dtype;
    hint = "it holds elements of the values";
  }
  require_dtype(law, op, 1, dtype, hint);
  if (!op.operand(2)) return;
  require_on_chip(law, op, 2);
  require_shape(law, op, 2, first, fmt::format("'order' is {}", str(first)));
  require_dtype(law, op, 2, keys.dtype, "it holds keys");
}

}  // namespace

void check_row_op(const Law& law, const Op& op) {
  for (size_t operand : {0, 1}) require_on_chip(law, op, operand);
  require_numbers(law, op, 0);
  switch (op.code) {
    case OpCode::ArgReduce: return check_arg_reduce(law, op);
    case OpCode::Cumsum: return check_cumsum(law, op);
    default: return check_sort(law, op);
  }
}

}  // namespace kiln
