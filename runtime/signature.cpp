#include "runtime/signature.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"

namespace kiln {
namespace {

std::string_view infix(OpCode code) {
  switch (code) {
    case OpCode::Add: return "+";
    case OpCode::Sub: return "-";
    case OpCode::Mul: return "*";
    case OpCode::FloorDiv: return "/";
    case OpCode::FloorMod: return "%";
    default: return "";
  }
}

// x of (x + (c - 1)) / c, the way ceildiv(x, c) is computed; none for anything else.
Value ceildiv_dividend(const Kernel& kernel, const Op& division) {
  const Op* sum = kernel.def_as(division.operands[0], OpCode::Add);
  auto divisor = constant_int(kernel, division.operands[1]);
  if (!sum || !divisor) return {};
  for (int side : {0, 1})
    if (constant_int(kernel, sum->operands[1 - side]) == *divisor - 1) return sum->operands[side];
  return {};
}

std::string number(const Scalar& value) {
  return is_float(value.dtype) ? fmt::format("{}", value.f) : fmt::format("{}", value.i);
}

std::string_view text(Role role) {
  switch (role) {
    case Role::Input: return "input";
    case Role::Output: return "output";
    case Role::InOut: return "inout";
  }
  return "";
}

template <class Range>
auto* find_named(Range& range, std::string_view name) {
  auto it = std::find_if(range.begin(), range.end(), [&](auto& item) { return item.name == name; });
  return it == range.end() ? nullptr : &*it;
}

}  // namespace

static std::string write(const Kernel& kernel, Value value, bool nested) {
  if (!kernel.def(value)) return "?";
  const Op& op = kernel.op(kernel.def(value));
  if (op.code == OpCode::Dim || op.code == OpCode::Param) return op.word("name");
  if (op.code == OpCode::Const) return number(constant_value(kernel, op));
  if (op.code == OpCode::FloorDiv)
    if (Value dividend = ceildiv_dividend(kernel, op))
      return fmt::format("ceildiv({}, {})", write(kernel, dividend, false),
                         write(kernel, op.operands[1], false));
  std::string_view sign = infix(op.code);
  std::vector<std::string> operands;
  for (Value operand : op.operands) operands.push_back(write(kernel, operand, !sign.empty()));
  if (sign.empty()) return fmt::format("{}({})", info(op.code).name, fmt::join(operands, ", "));
  std::string text = fmt::format("{} {} {}", operands[0], sign, operands[1]);
  return nested ? "(" + text + ")" : text;
}

std::string expression(const Kernel& kernel, Value value) {
  return write(kernel, value, false);
}

std::string TensorInfo::text() const {
  std::vector<std::string_view> extents;
  for (const AxisInfo& axis : axes) extents.push_back(axis.text);
  return fmt::format("{} [{}]", kiln::name(dtype), fmt::join(extents, ", "));
}

Signature::Signature(std::shared_ptr<const Kernel> kernel) : kernel_(std::move(kernel)) {
  for (OpId id : kernel_->region(kernel_->body).ops) {
    const Op& op = kernel_->op(id);
    if (op.code == OpCode::Dim) dims_.push_back(op.word("name"));
    if (op.code == OpCode::Param)
      params_.push_back({op.word("name"), kernel_->type(op.result).dtype});
    if (op.code == OpCode::Tensor && op.word("role") != "workspace") add_tensor(op);
  }
}

void Signature::add_tensor(const Op& op) {
  const Type& type = kernel_->type(op.result);
  const std::string& role = op.word("role");
  TensorInfo tensor{op.word("name"),
                    role == "input"    ? Role::Input
                    : role == "output" ? Role::Output
                                       : Role::InOut,
                    type.dtype,
                    {}};
  size_t next = 0;
  for (int64_t extent : type.shape) {
    AxisInfo axis{extent, "", {}, std::to_string(extent)};
    if (extent == kDynamic) {
      axis.value = op.operand(next++);
      if (!axis.value)
        throw InternalError(op.loc, fmt::format("tensor {}: a ? without extent", tensor.name));
      axis.text = expression(*kernel_, axis.value);
      if (kernel_->def_as(axis.value, OpCode::Dim)) axis.dim = axis.text;
    }
    tensor.axes.push_back(std::move(axis));
  }
  tensors_.push_back(std::move(tensor));
}

bool Signature::has_dim(std::string_view name) const {
  return std::find(dims_.begin(), dims_.end(), name) != dims_.end();
}

const TensorInfo* Signature::tensor(std::string_view name) const {
  return find_named(tensors_, name);
}

const ParamInfo* Signature::param(std::string_view name) const {
  return find_named(params_, name);
}

std::string Signature::text() const {
  std::vector<std::string> parts;
  for (const TensorInfo& tensor : tensors_)
    parts.push_back(fmt::format("{} {} {}", kiln::text(tensor.role), tensor.name, tensor.text()));
  for (const std::string& dim : dims_) parts.push_back("dim " + dim);
  for (const ParamInfo& param : params_)
    parts.push_back(fmt::format("param {} {}", param.name, kiln::name(param.dtype)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace kiln
