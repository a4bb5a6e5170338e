#include "ir/builder.h"

namespace kiln {

OpId Builder::emit(OpCode code, std::vector<Value> operands, Attrs attrs,
                   std::optional<Type> type) {
  OpId id = kernel_->new_op(code, loc, std::move(operands), std::move(attrs));
  if (type) kernel_->set_result(id, std::move(*type));
  kernel_->region(region_).ops.push_back(id);
  return id;
}

RegionId Builder::add_region(OpId op) {
  RegionId region = kernel_->new_region();
  kernel_->op(op).regions.push_back(region);
  return region;
}

Value Builder::constant(const Scalar& value) {
  Attrs attrs;
  attrs.set("value", is_float(value.dtype) ? AttrValue(value.f) : AttrValue(value.i));
  return kernel_->op(emit(OpCode::Const, {}, std::move(attrs), Type::scalar(value.dtype))).result;
}

Value Builder::constant(DType dtype, double value) {
  return constant(is_float(dtype) ? Scalar::of_float(dtype, value)
                                  : Scalar::of_int(dtype, static_cast<int64_t>(value)));
}

Value Builder::constant(DType dtype, int64_t value) {
  return constant(is_float(dtype) ? Scalar::of_float(dtype, static_cast<double>(value))
                                  : Scalar::of_int(dtype, value));
}

Value Builder::unary(OpCode code, Value a) {
  return kernel_->op(emit(code, {a}, {}, kernel_->type(a))).result;
}

Value Builder::binary(OpCode code, Value a, Value b) {
  return kernel_->op(emit(code, {a, b}, {}, kernel_->type(a))).result;
}

Value Builder::compare(const char* kind, Value a, Value b) {
  Attrs attrs;
  attrs.set("kind", std::string(kind));
  return kernel_->op(emit(OpCode::Compare, {a, b}, std::move(attrs), Type::scalar(Bool))).result;
}

Value Builder::select(Value condition, Value a, Value b) {
  return kernel_->op(emit(OpCode::Select, {condition, a, b}, {}, kernel_->type(a))).result;
}

Value Builder::cast(Value a, DType dtype) {
  if (kernel_->type(a).dtype == dtype) return a;
  return kernel_->op(emit(OpCode::Cast, {a}, {}, Type::scalar(dtype))).result;
}

Value Builder::alloc(Space space, DType dtype, Shape shape) {
  return kernel_->op(emit(OpCode::Alloc, {}, {}, Type::tile(space, dtype, std::move(shape))))
      .result;
}

Value Builder::slice(Value base, std::vector<Value> index, Shape sizes) {
  Type type = Type::view(kernel_->type(base).space, kernel_->type(base).dtype, std::move(sizes));
  index.insert(index.begin(), base);
  return kernel_->op(emit(OpCode::Slice, std::move(index), {}, std::move(type))).result;
}

Value Builder::every(Value tensor, int axis, int64_t step, Value first, Value end) {
  const Type& base = kernel_->type(tensor);
  Shape shape = base.shape;
  shape.at(static_cast<size_t>(axis)) = kDynamic;
  Type type = Type::view(base.space, base.dtype, std::move(shape));
  Attrs attrs;
  attrs.set("axis", int64_t{axis});
  attrs.set("step", step);
  return kernel_->op(emit(OpCode::Every, {tensor, first, end}, std::move(attrs), std::move(type)))
      .result;
}

Value Builder::reshape(Value tile, DType dtype, Shape shape) {
  return kernel_
      ->op(emit(OpCode::Reshape, {tile}, {}, Type::tile(Space::Shared, dtype, std::move(shape))))
      .result;
}

Value Builder::load(Value base, std::vector<Value> index) {
  Type type = Type::scalar(kernel_->type(base).dtype);
  index.insert(index.begin(), base);
  return kernel_->op(emit(OpCode::Load, std::move(index), {}, type)).result;
}

void Builder::store(Value value, Value base, std::vector<Value> index) {
  index.insert(index.begin(), {value, base});
  emit(OpCode::Store, std::move(index));
}

Value Builder::atomic(const char* kind, Value value, Value base, std::vector<Value> index) {
  const Type type = Type::scalar(kernel_->type(base).dtype);
  Attrs attrs;
  attrs.set("kind", std::string(kind));
  index.insert(index.begin(), {value, base});
  return kernel_->op(emit(OpCode::Atomic, std::move(index), std::move(attrs), type)).result;
}

void Builder::fill(double value, Value destination) {
  emit(OpCode::Fill, {constant(kernel_->type(destination).dtype, value), destination});
}

}  // namespace kiln
