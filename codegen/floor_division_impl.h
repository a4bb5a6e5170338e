// ⌊a / b⌋ and a − b·⌊a / b⌋ of integers, the same on every tier.
#pragma once

#include <llvm/IR/IRBuilder.h>

namespace kiln {

// Of integers or vectors of them. LLVM leaves division by 0, and of the smallest integer by −1,
// undefined (a CPU traps), so those divisors are replaced before dividing.
inline llvm::Value* floor_division(llvm::IRBuilderBase& ir, llvm::Value* x, llvm::Value* y,
                                   bool is_signed, bool remainder) {
  using Val = llvm::Value*;
  Val zero = llvm::ConstantInt::get(x->getType(), 0), one = llvm::ConstantInt::get(x->getType(), 1);
  Val by_zero = ir.CreateICmpEQ(y, zero);
  Val safe = ir.CreateSelect(by_zero, one, y);
  Val result;
  if (!is_signed) {
    result = remainder ? ir.CreateURem(x, safe) : ir.CreateUDiv(x, safe);
  } else {
    Val negated = ir.CreateICmpEQ(y, llvm::Constant::getAllOnesValue(x->getType()));
    safe = ir.CreateSelect(negated, one, safe);
    Val quotient = ir.CreateSDiv(x, safe);
    Val rest = ir.CreateSub(x, ir.CreateMul(quotient, safe));
    Val below =
        ir.CreateAnd(ir.CreateICmpNE(rest, zero), ir.CreateICmpSLT(ir.CreateXor(rest, safe), zero));
    if (remainder) {
      result = ir.CreateAdd(rest, ir.CreateSelect(below, safe, zero));
    } else {
      result = ir.CreateSub(quotient, ir.CreateSelect(below, one, zero));
      result = ir.CreateSelect(negated, ir.CreateNeg(x), result);
    }
  }
  return ir.CreateSelect(by_zero, zero, result);
}

}  // namespace kiln
