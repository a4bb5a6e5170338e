// What both tiers ask of LLVM: set-up, checks, clean-up passes, emission.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Support/CodeGen.h>
#include <llvm/Target/TargetMachine.h>

#include <string>

namespace kiln {

// Once a process; LLVM's fatal errors become InternalError.
void initialize_llvm();

// A module of its own context, and what LLVM reports while working on it.
class ModuleOwner {
 public:
  explicit ModuleOwner(const std::string& name);
  ModuleOwner(const ModuleOwner&) = delete;

  llvm::Module& module() { return module_; }
  void set_target(const llvm::TargetMachine& machine);
  void check() const;  // InternalError if malformed
  // Promotes variables, merges address arithmetic, moves it out of loops: our loops and vectors are
  // as they should be, and a full O2 gives the same speed for five times the time.
  // Without `hoist` nothing leaves a loop: where registers are scarce, what a rare branch computes
  // anew is better than what every round keeps for it.
  void clean_up(llvm::TargetMachine& machine, bool hoist = true);
  std::string emit(llvm::TargetMachine& machine, llvm::CodeGenFileType type);
  std::string text() const;

 private:
  std::string errors_;
  llvm::LLVMContext context_;
  llvm::Module module_;
  bool lean_ = false;  // without the back end's repeats of clean_up
};

}  // namespace kiln
