#include "ir/kernel.h"

#include <bit>

namespace kiln {

// Equal as text: 0.0 and -0.0 are two numbers.
static bool same(const AttrValue& a, const AttrValue& b) {
  const double *x = std::get_if<double>(&a), *y = std::get_if<double>(&b);
  return x && y ? std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y) : a == b;
}

// The body is not in the initialiser list: the arenas, declared after it, must exist first.
Kernel::Kernel(std::string kernel_name) : name(std::move(kernel_name)) {
  body = new_region();
}

const Op* Kernel::def_as(Value value, OpCode code) const {
  OpId id = value ? def(value) : OpId{};
  return id && op(id).code == code ? &op(id) : nullptr;
}

Value Kernel::new_value(Type type, OpId def) {
  values_.push_back({std::move(type), def});
  return Value{static_cast<uint32_t>(values_.size() - 1)};
}

OpId Kernel::new_op(OpCode code, Loc loc, std::vector<Value> operands, Attrs attrs) {
  const OpInfo& row = info(code);
  Attrs stored;
  for (const auto& [key, value] : attrs.entries()) {
    const AttrInfo* attr = row.attr(key);
    if (!attr || !attr->default_value || !same(*attr->default_value, value)) stored.set(key, value);
  }
  while (!operands.empty() && !operands.back()) operands.pop_back();
  ops_.push_back({code, loc, std::move(operands), {}, std::move(stored), {}});
  return OpId{static_cast<uint32_t>(ops_.size() - 1)};
}

Value Kernel::set_result(OpId id, Type type) {
  return op(id).result = new_value(std::move(type), id);
}

RegionId Kernel::new_region() {
  regions_.emplace_back();
  return RegionId{static_cast<uint32_t>(regions_.size() - 1)};
}

Value Kernel::add_argument(RegionId id, Type type) {
  Value value = new_value(std::move(type));
  region(id).args.push_back(value);
  return value;
}

Scalar constant_value(const Kernel& kernel, const Op& constant) {
  DType dtype = kernel.type(constant.result).dtype;
  const AttrValue& value = constant.attr("value");
  if (auto* integer = std::get_if<int64_t>(&value))
    return is_float(dtype) ? Scalar::of_float(dtype, static_cast<double>(*integer))
                           : Scalar::of_int(dtype, *integer);
  return Scalar::of_float(dtype, std::get<double>(value));
}

std::optional<Scalar> constant_of(const Kernel& kernel, Value value) {
  const Op* constant = kernel.def_as(value, OpCode::Const);
  return constant ? std::optional(constant_value(kernel, *constant)) : std::nullopt;
}

std::optional<int64_t> constant_int(const Kernel& kernel, Value value) {
  auto scalar = constant_of(kernel, value);
  return scalar && !is_float(scalar->dtype) ? std::optional(scalar->i) : std::nullopt;
}

Value base_of(const Kernel& kernel, Value storage) {
  while (true) {
    storage = whole_of(kernel, storage);
    const Op* part = kernel.def_as(storage, OpCode::Reshape);
    if (!part) part = kernel.def_as(storage, OpCode::Every);
    if (!part) return storage;
    storage = part->operands[0];
  }
}

Value whole_of(const Kernel& kernel, Value storage) {
  while (const Op* slice = kernel.def_as(storage, OpCode::Slice)) storage = slice->operands[0];
  return storage;
}

const Op* channel_of(const Kernel& kernel, Value slot) {
  for (OpCode code : {OpCode::PushBegin, OpCode::Pop, OpCode::Held})
    if (const Op* op = kernel.def_as(slot, code))
      return kernel.def_as(op->operands[0], OpCode::Channel);
  return nullptr;
}

}  // namespace kiln
