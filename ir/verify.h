// The law of the IR; verify.cpp's head comment lists it.
#pragma once

#include "ir/kernel.h"

namespace kiln {

// Traced: as a person wrote it; a constant slice that leaves a static base is then a mistake too.
// Passes make such slices rightly (an unrolled tail), so elsewhere they mean what the table says.
enum class IrStage { Traced, Lowered };

// Throws UserError at the location of the first op that breaks a rule: the rule, expected and got.
void verify(const Kernel& kernel, IrStage stage = IrStage::Lowered);

// The rules of one op alone, while a kernel is being built: not where its operands are defined, nor
// what its regions hold. `parallel` is the loop around it, none if there is none.
void verify_op(const Kernel& kernel, OpId op, OpId parallel = {});

}  // namespace kiln
