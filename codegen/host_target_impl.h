// LLVM's side of a target.
#pragma once

#include <llvm/Target/TargetMachine.h>

#include <memory>

#include "codegen/host_impl.h"

namespace kiln::host {

void initialize_llvm();  // once a process; fatal errors become InternalError
std::unique_ptr<llvm::TargetMachine> target_machine(const Target& target);

}  // namespace kiln::host
