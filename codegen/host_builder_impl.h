// An IRBuilder that knows our element types, vectors and structured control flow.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <functional>
#include <span>

#include "codegen/host_impl.h"
#include "ir/kernel.h"

namespace kiln::host {

using Val = llvm::Value*;

class Builder {
 public:
  Builder(llvm::Module& module, const Target& target)
      : ir(module.getContext()), module(module), target(target) {}

  llvm::IRBuilder<> ir;
  llvm::Module& module;
  const Target& target;

  // Element types. Values: floats below f32 are f32 (rounded to their dtype), Bool is i1. Tiles
  // hold values as they are, Bool as a byte; tensors hold the dtype's own bits.
  llvm::Type* value_type(DType dtype);
  llvm::Type* tile_type(DType dtype);
  llvm::Type* tensor_type(DType dtype);
  static llvm::Type* widen(llvm::Type* element, int lanes);  // itself for one lane
  static int lanes_of(Val value);

  // Constants.
  Val i64(int64_t value) { return ir.getInt64(static_cast<uint64_t>(value)); }
  Val i32(int64_t value) { return ir.getInt32(static_cast<uint32_t>(value)); }
  Val real(llvm::Type* type, double value);          // splat for a vector type
  Val integer(llvm::Type* type, uint64_t value);     // of type's width, splat likewise
  Val constant(const Scalar& scalar);                // one lane
  static const llvm::ConstantInt* known(Val value);  // if constant

  // Lanes.
  Val spread(Val value, int lanes);  // broadcast, unless it is a vector already
  Val lane(Val value, int index);
  Val iota(llvm::Type* element, int lanes);  // 0, 1, 2, …
  // Lanes k with low <= k < high (i64). Null for all of them.
  Val mask(Val low, Val high, int lanes);
  Val first(int count, int lanes);  // the first `count`; null if that is all

  // a·b + c, with one rounding if the CPU can.
  Val multiply_add(Val a, Val b, Val c);
  Val call(llvm::Intrinsic::ID id, std::span<const Val> args);  // overloaded on the first
  Val smin(Val a, Val b) { return extremum(a, b, false); }
  Val smax(Val a, Val b) { return extremum(a, b, true); }
  Val clamp(Val value, Val low, Val high) { return smin(smax(value, low), high); }
  // A C function that host_jit.cpp lends to compiled code, called once a lane.
  Val library_call(const char* name, std::span<const Val> args);

  // Structured control flow. Loops count in i64.
  void loop(Val begin, Val end, Val step, const std::function<void(Val)>& body);
  using Values = std::vector<Val>;
  Values loop(Val begin, Val end, Val step, Values carried,
              const std::function<Values(Val, const Values&)>& body);
  void when(Val condition, const std::function<void()>& then,
            const std::function<void()>& otherwise = {});
  Val choose(Val condition, const std::function<Val()>& then, Val otherwise);

  llvm::AllocaInst* variable(llvm::Type* type);  // in the entry block, for mem2reg

 private:
  Val extremum(Val a, Val b, bool larger);
  llvm::BasicBlock* block(const char* name);
};

}  // namespace kiln::host
