// Runs a straight-line LLVM function of the GPU tier on the host: what one thread computes,
// exactly.
#pragma once

#include <llvm/IR/Function.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/IntrinsicInst.h>

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace kiln::testing {

// Values are bits in a uint64_t, the unused ones 0. Approximate instructions round correctly here.
// A division by 0, a result that depends on a poison value (a shift by too much), and what this
// does not know, are a std::runtime_error. Flushes subnormal f32 where the function's attribute
// says so.
class StraightLine {
 public:
  explicit StraightLine(const llvm::Function& function);
  uint64_t operator()(std::span<const uint64_t> arguments);

 private:
  struct Step {
    const llvm::Instruction* instruction;
    std::vector<size_t> in;  // slots
    size_t result;
  };

  size_t slot(const llvm::Value* value);
  bool is_poison(const Step& step) const;
  uint64_t run(const Step& step) const;
  uint64_t call(const llvm::IntrinsicInst& call, std::span<const uint64_t> in) const;
  uint64_t real_operation(const llvm::Instruction& instruction, std::span<const uint64_t> in) const;
  double read(const llvm::Type* type, uint64_t bits) const;
  uint64_t rounded(const llvm::Type* type, double value) const;

  bool flush_;
  std::vector<Step> steps_;
  std::vector<uint64_t> slots_;
  std::vector<bool> poison_;  // of slots
  std::unordered_map<const llvm::Value*, size_t> slot_of_;
  size_t returned_ = 0;
};

}  // namespace kiln::testing
