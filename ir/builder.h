// Appends ops to a kernel at an insertion point, inferring result types.
#pragma once

#include <span>

#include "ir/kernel.h"

namespace kiln {

// A stack of open regions; ops go to the end of the innermost. Result types that follow from the
// operands are inferred; malformed operands are left to the verifier.
class Builder {
 public:
  explicit Builder(Kernel& kernel) : kernel_(&kernel), region_(kernel.body) {}
  Builder(Kernel& kernel, RegionId region) : kernel_(&kernel), region_(region) {}

  Kernel& kernel() const { return *kernel_; }
  RegionId region() const { return region_; }
  Loc loc;  // of the ops that follow

  // Any op. `type`: the result's, none if there is no result.
  OpId emit(OpCode code, std::vector<Value> operands, Attrs attrs = {},
            std::optional<Type> type = std::nullopt);

  // Scalars. Operands agree in type.
  Value constant(DType dtype, double value);
  Value constant(DType dtype, int64_t value);
  Value constant(DType dtype, int value) { return constant(dtype, static_cast<int64_t>(value)); }
  Value constant(const Scalar& value);
  Value unary(OpCode code, Value a);
  Value binary(OpCode code, Value a, Value b);
  Value compare(const char* kind, Value a, Value b);
  Value select(Value condition, Value a, Value b);
  Value cast(Value a, DType dtype);

  // Storage.
  Value alloc(Space space, DType dtype, Shape shape);
  Value slice(Value base, std::vector<Value> index, Shape sizes);
  Value every(Value tensor, int axis, int64_t step, Value first, Value end);
  Value reshape(Value tile, DType dtype, Shape shape);
  Value load(Value base, std::vector<Value> index = {});
  void store(Value value, Value base, std::vector<Value> index = {});
  Value atomic(const char* kind, Value value, Value base, std::vector<Value> index);
  void fill(double value, Value destination);

  // Opens a region of a new op and moves the insertion point into it until the object dies.
  class Scope {
   public:
    Scope(Builder& builder, RegionId region) : builder_(builder), outer_(builder.region_) {
      builder.region_ = region;
    }
    ~Scope() { builder_.region_ = outer_; }
    Scope(const Scope&) = delete;

   private:
    Builder& builder_;
    RegionId outer_;
  };
  // parallel over `extents`, which may be those of a value; the body gets one i32 index an axis.
  template <class Body>
  void parallel(Shape extents, Body&& body) {
    Attrs attrs;
    attrs.set("extents", extents);
    OpId op = emit(OpCode::Parallel, {}, std::move(attrs));
    RegionId region = add_region(op);
    std::vector<Value> index;
    for (size_t axis = 0; axis < extents.size(); ++axis)
      index.push_back(kernel_->add_argument(region, Type::scalar(I32)));
    Scope scope(*this, region);
    body(std::span<const Value>(index));
  }
  RegionId add_region(OpId op);

 private:
  Kernel* kernel_;
  RegionId region_;
};

}  // namespace kiln
