// An IRBuilder that knows our element types on a GPU and structured control flow.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsNVPTX.h>
#include <llvm/IR/Module.h>

#include <concepts>
#include <functional>
#include <span>
#include <vector>

#include "ir/kernel.h"
#include "passes/gpu_target.h"

namespace kiln::nvptx {

using Val = llvm::Value*;
using Values = std::vector<Val>;

inline constexpr unsigned kGlobal = 1, kShared = 3;  // address spaces

class Builder {
 public:
  Builder(llvm::Module& module, const GpuTarget& target, bool fast)
      : ir(module.getContext()), module(module), target(target), fast(fast), ptx(target.ptx) {}

  llvm::IRBuilder<> ir;
  llvm::Module& module;
  const GpuTarget& target;
  const bool fast;  // the kernel's fast_math: flush denormals too
  int ptx;          // version that what was emitted needs; call() raises it

  // Element types. Values in registers: half, bfloat, float, double, fp8 as i8, integers, Bool as
  // i1. In memory the same, but Bool is i8 (not 0 is true; stored as 0 or 1).
  llvm::Type* value_type(DType dtype);
  llvm::Type* memory_type(DType dtype);
  Val to_memory(Val value, DType dtype);  // what is stored; vectors too
  Val from_memory(Val stored, DType dtype);

  // Constants.
  Val i1(bool value) { return ir.getInt1(value); }
  Val i32(int64_t value) { return ir.getInt32(static_cast<uint32_t>(value)); }
  Val i64(int64_t value) { return ir.getInt64(static_cast<uint64_t>(value)); }
  Val constant(const Scalar& scalar);
  Val zero(DType dtype) { return llvm::Constant::getNullValue(value_type(dtype)); }

  // An intrinsic of LLVM or NVPTX, overloaded on `types`. Raises `ptx` to the version it needs.
  // InternalError, before LLVM would abort, if the target lacks it or it is not on our list
  // (nvptx_intrinsics.cpp).
  Val call(llvm::Intrinsic::ID id, std::span<const Val> args,
           llvm::ArrayRef<llvm::Type*> types = {});
  Val call(llvm::Intrinsic::ID id, std::initializer_list<Val> args,
           llvm::ArrayRef<llvm::Type*> types = {}) {
    return call(id, std::span<const Val>(args.begin(), args.size()), types);
  }

  // Conditions; null stands for true.
  Val both(Val a, Val b) { return !a ? b : !b ? a : ir.CreateAnd(a, b); }

  Val defined(Val value);  // 0 for one that is nothing yet
  // Structured control flow; i32 counters. `carried` are the values on entry, body(index, values)
  // gives those of the next round; the result is those at the end.
  Values loop(Val begin, Val end, Val step, Values carried,
              const std::function<Values(Val, const Values&)>& body);
  void loop(Val begin, Val end, Val step, const std::function<void(Val)>& body) {
    loop(begin, end, step, {}, [&](Val index, const Values&) { return body(index), Values(); });
  }
  // Both branches give as many values, or none. A null condition is true.
  template <class Then, class Otherwise>
  Values when(Val condition, Then&& then,
              Otherwise&& otherwise) requires std::same_as<std::invoke_result_t<Then>, Values> {
    return branch(condition, then, otherwise);
  }
  template <class Then>
  void when(Val condition, Then&& then, const std::function<void()>& otherwise = {}) requires
      std::is_void_v<std::invoke_result_t<Then>> {
    branch(
        condition, [&] { return then(), Values(); },
        [&] { return otherwise ? otherwise() : void(), Values(); });
  }
  // Blocks, for control flow of other forms: the values that come from each of several, joined
  // where the builder stands; and a loop's way back, not to be unrolled.
  llvm::BasicBlock* block(const char* name);
  Values join(const std::vector<std::pair<llvm::BasicBlock*, Values>>& from);
  void keep_rolled(llvm::BranchInst* back);

 private:
  Values branch(Val condition, const std::function<Values()>& then,
                const std::function<Values()>& otherwise);
};

}  // namespace kiln::nvptx
