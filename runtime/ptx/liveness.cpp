#include "runtime/ptx/liveness.h"

namespace kiln::ptx {

std::vector<BasicBlock> blocks_of(const Entry& entry, size_t registers) {
  const auto& code = entry.code;
  std::vector<BasicBlock> blocks;
  std::vector<int32_t> block_of(code.size());
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].leader) blocks.emplace_back().first = static_cast<int32_t>(i);
    block_of[i] = static_cast<int32_t>(blocks.size()) - 1;
    blocks.back().end = static_cast<int32_t>(i) + 1;
  }
  for (BasicBlock& block : blocks) {
    block.uses = block.defines = block.writes = block.live_in = block.live_out = BitSet(registers);
    for (int32_t i = block.first; i < block.end; ++i) {
      const Instruction& instruction = code[static_cast<size_t>(i)];
      auto use = [&](int32_t slot) {
        if (!block.defines.test(static_cast<size_t>(slot)))
          block.uses.set(static_cast<size_t>(slot));
      };
      if (instruction.guard >= 0) use(instruction.guard);
      for_each_operand(instruction, [&](const Operand& operand) {
        if (operand.role == OperandRole::Use) use(operand.slot);
      });
      for_each_operand(instruction, [&](const Operand& operand) {
        if (operand.role == OperandRole::Define)
          block.writes.set(static_cast<size_t>(operand.slot));
      });
      if (instruction.guard >= 0) continue;  // may leave its results as they were
      for_each_operand(instruction, [&](const Operand& operand) {
        if (operand.role == OperandRole::Define)
          block.defines.set(static_cast<size_t>(operand.slot));
      });
    }
    const Instruction& last = code[static_cast<size_t>(block.end) - 1];
    bool falls = last.guard >= 0 || last.flow == Flow::Next || last.flow > Flow::Exit;
    auto end = static_cast<size_t>(block.end);
    if (falls && end < code.size()) block.successors.push_back(block_of[end]);
    if (last.flow == Flow::Branch)
      block.successors.push_back(block_of[static_cast<size_t>(last.target)]);
    if (last.flow == Flow::BranchTable)
      for (int32_t target : entry.tables[static_cast<size_t>(last.target)])
        block.successors.push_back(block_of[static_cast<size_t>(target)]);
  }
  return blocks;
}

void find_liveness(std::vector<BasicBlock>& blocks) {
  for (BasicBlock& block : blocks) block.live_in.merge(block.uses);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = blocks.size(); i-- > 0;) {
      BasicBlock& block = blocks[i];
      bool grew = false;
      for (int32_t to : block.successors)
        grew |= block.live_out.merge(blocks[static_cast<size_t>(to)].live_in);
      if (grew) changed |= block.live_in.merge(block.live_out, &block.defines);
    }
  }
}

}  // namespace kiln::ptx
