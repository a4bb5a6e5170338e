// ⌊a / b⌋ and a − b·⌊a / b⌋ of integers, the same on every tier.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace kiln {

// Of integers or vectors of them. LLVM leaves division by 0, and of the smallest integer by −1,
// undefined (a CPU traps), so those divisors are replaced before dividing. By 2, not 1: for
// AVX-512, LLVM 22's DAGCombiner makes x / select(c, 1, y) into select(c, x, x / y), which divides
// by that y.
inline llvm::Value* floor_division(llvm::IRBuilderBase& ir, llvm::Value* x, llvm::Value* y,
                                   bool is_signed, bool remainder) {
  using Val = llvm::Value*;
  auto number = [&](uint64_t value) { return llvm::ConstantInt::get(x->getType(), value); };
  Val zero = number(0);
  Val by_zero = ir.CreateICmpEQ(y, zero);
  Val safe = ir.CreateSelect(by_zero, number(2), y);
  Val result;
  if (!is_signed) {
    result = remainder ? ir.CreateURem(x, safe) : ir.CreateUDiv(x, safe);
  } else {
    Val negated = ir.CreateICmpEQ(y, llvm::Constant::getAllOnesValue(x->getType()));
    safe = ir.CreateSelect(negated, number(2), safe);
    Val quotient = ir.CreateSDiv(x, safe);
    Val rest = ir.CreateSub(x, ir.CreateMul(quotient, safe));
    Val below =
        ir.CreateAnd(ir.CreateICmpNE(rest, zero), ir.CreateICmpSLT(ir.CreateXor(rest, safe), zero));
    if (remainder) {
      result = ir.CreateAdd(rest, ir.CreateSelect(below, safe, zero));
      result = ir.CreateSelect(negated, zero, result);
    } else {
      result = ir.CreateSub(quotient, ir.CreateSelect(below, number(1), zero));
      result = ir.CreateSelect(negated, ir.CreateNeg(x), result);
    }
  }
  return ir.CreateSelect(by_zero, zero, result);
}

}  // namespace kiln
