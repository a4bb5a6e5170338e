// LLVM's side of a target.
#pragma once

#include <llvm/Target/TargetMachine.h>

#include <memory>

#include "codegen/host_impl.h"

namespace kiln::host {

std::unique_ptr<llvm::TargetMachine> target_machine(const Target& target);

}  // namespace kiln::host
