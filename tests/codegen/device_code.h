// LLVM functions of one GPU thread's scalar code: to run on the host, and to assemble.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "codegen/llvm_impl.h"
#include "codegen/nvptx_builder_impl.h"

namespace kiln::testing {

// A computation on values in registers.
struct Computation {
  std::string name;
  std::vector<DType> operands;
  DType result;
  std::function<nvptx::Val(nvptx::Builder&, std::span<const nvptx::Val>)> emit;
};

// A module for one target; `fast` flushes subnormals.
class DeviceCode {
 public:
  explicit DeviceCode(const std::string& target, bool fast = false);
  ~DeviceCode();

  // A function of the operands' values, which returns the result's.
  llvm::Function& function(const Computation& computation);
  // A kernel of all: one pointer to the operands of each, one to its results.
  void kernel(const std::string& name, std::span<const Computation> computations);
  void clean_up();    // the passes that all code goes through
  std::string ptx();  // InternalError if LLVM cannot emit it

 private:
  llvm::Function& start(const std::string& name, llvm::Type* result,
                        llvm::ArrayRef<llvm::Type*> arguments);
  std::unique_ptr<llvm::TargetMachine> machine() const;

  std::string target_;
  ModuleOwner owner_;
  nvptx::Builder b_;
};

}  // namespace kiln::testing
