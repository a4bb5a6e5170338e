// The host side of a launch: dims, params and the scalars computed from them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "ir/error.h"
#include "ir/interp.h"

namespace kiln {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 59;  // sizes in bytes fit 63 bits

Scalar dim_value(const Op& op, const std::map<std::string, int64_t>& dims) {
  const std::string& name = op.word("name");
  auto found = dims.find(name);
  if (found == dims.end())
    throw UserError(op.loc, fmt::format("dim '{}' is not bound", name),
                    "give its size, or a tensor that has it");
  if (found->second < 0 || found->second > INT32_MAX)
    throw UserError(
        op.loc, fmt::format("dim '{}': expected 0 … {}, got {}", name, INT32_MAX, found->second),
        "sizes are i32");
  return Scalar::of_int(I32, found->second);
}

Scalar param_value(const Op& op, DType dtype, const std::map<std::string, Scalar>& params) {
  const std::string& name = op.word("name");
  auto found = params.find(name);
  if (found == params.end())
    throw UserError(op.loc,
                    fmt::format("param '{}' is not bound: expected {}", name, kiln::name(dtype)),
                    "give its value");
  if (found->second.dtype != dtype)
    throw UserError(op.loc,
                    fmt::format("param '{}': expected {}, got {}", name, kiln::name(dtype),
                                kiln::name(found->second.dtype)),
                    "convert it first");
  return found->second;
}

}  // namespace

TopLevel::TopLevel(const Kernel& kernel, const std::map<std::string, int64_t>& dims,
                   const std::map<std::string, Scalar>& params)
    : kernel_(kernel) {
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code == OpCode::Tensor || op.code == OpCode::Launch) continue;
    Scalar& value = values_[op.result.id];
    if (op.code == OpCode::Dim) {
      value = dim_value(op, dims);
    } else if (op.code == OpCode::Param) {
      value = param_value(op, kernel.type(op.result).dtype, params);
    } else {
      std::vector<Scalar> operands;
      for (Value operand : op.operands) operands.push_back(scalar(operand));
      value = evaluate(kernel, op, operands);
    }
  }
}

const Scalar& TopLevel::scalar(Value value) const {
  auto found = values_.find(value.id);
  if (found == values_.end()) throw InternalError("not a scalar of the top level");
  return found->second;
}

std::vector<int64_t> TopLevel::shape(const Op& tensor) const {
  Shape shape = kernel_.type(tensor.result).shape;
  size_t next = 0;
  int64_t elements = 1;
  for (int64_t& extent : shape) {
    if (extent == kDynamic) extent = scalar(tensor.operands[next++]).i;
    if (extent < 0)
      throw UserError(tensor.loc,
                      fmt::format("tensor '{}': expected extents of 0 or more, got {}",
                                  tensor.word("name"), extent),
                      "the dims and params that it is computed from");
    if (extent > 0 && elements > kMostElements / extent)
      throw UserError(tensor.loc,
                      fmt::format("tensor '{}': expected at most {} elements, got {}",
                                  tensor.word("name"), kMostElements, str(shape)),
                      "smaller dims");
    elements *= std::max<int64_t>(extent, 1);
  }
  return shape;
}

std::vector<int64_t> TopLevel::grid(const Op& launch) const {
  std::vector<int64_t> grid(3, 1);
  for (size_t axis = 0; axis < launch.operands.size(); ++axis) {
    grid[axis] = scalar(launch.operands[axis]).i;
    if (grid[axis] < 0)
      throw UserError(launch.loc,
                      fmt::format("launch: expected extents of 0 or more, got {} "
                                  "on axis {}",
                                  grid[axis], axis),
                      "the dims and params that it is computed from");
  }
  if (std::count(grid.begin(), grid.end(), 0) > 0) return grid;
  int64_t blocks = 1;
  for (int64_t extent : grid) {
    if (extent > INT32_MAX / blocks)
      throw UserError(launch.loc,
                      fmt::format("launch: expected at most {} blocks, got {} x {} x {}", INT32_MAX,
                                  grid[0], grid[1], grid[2]),
                      "give each block more to do");
    blocks *= extent;
  }
  return grid;
}

}  // namespace kiln
