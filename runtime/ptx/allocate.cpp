// Virtual registers to slots: a linear scan over live intervals. Without it a warp's registers of
// unrolled code would not fit a cache. Lanes do not disturb one another: each follows one path, and
// an instruction writes its own lanes only.
#include <algorithm>
#include <queue>
#include <vector>

#include "runtime/ptx/liveness.h"

namespace kiln::ptx {
namespace {

struct Interval {
  int32_t first = INT32_MAX, last = -1;
  void include(int32_t at) {
    first = std::min(first, at);
    last = std::max(last, at);
  }
};

std::vector<Interval> intervals_of(const Entry& entry, const std::vector<BasicBlock>& blocks,
                                   size_t registers) {
  std::vector<Interval> intervals(registers);
  for (const BasicBlock& block : blocks) {
    block.live_in.for_each([&](size_t r) { intervals[r].include(block.first); });
    block.live_out.for_each([&](size_t r) { intervals[r].include(block.end); });
    for (int32_t i = block.first; i < block.end; ++i) {
      const Instruction& instruction = entry.code[static_cast<size_t>(i)];
      if (instruction.guard >= 0) intervals[static_cast<size_t>(instruction.guard)].include(i);
      for_each_operand(instruction, [&](const Operand& operand) {
        intervals[static_cast<size_t>(operand.slot)].include(i);
      });
    }
  }
  return intervals;
}

int units_of(Type type) {
  return type == Type::Pred ? 0 : std::max(4, bytes_of(type)) / 4;
}

// Slots of registers that take the same number of units.
class Pool {
 public:
  explicit Pool(int units) : units_(units) {}
  int32_t take(const Interval& interval, int32_t& end) {
    // A result may not take the slot of an operand of its own instruction: handlers write some
    // results before they have read all operands.
    if (!busy_.empty() && busy_.top().first < interval.first) {
      int32_t slot = busy_.top().second;
      busy_.pop();
      busy_.emplace(interval.last, slot);
      return slot;
    }
    int32_t slot = end;
    end += std::max(units_, 1);
    busy_.emplace(interval.last, slot);
    return slot;
  }

 private:
  using Busy = std::pair<int32_t, int32_t>;  // until, slot
  int units_;
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy_;
};

// Registers that some instruction writes.
BitSet written_ones(const Entry& entry, size_t registers) {
  BitSet written(registers);
  for (const Instruction& instruction : entry.code)
    for_each_operand(instruction, [&](const Operand& operand) {
      if (operand.role == OperandRole::Define) written.set(static_cast<size_t>(operand.slot));
    });
  return written;
}

// LLVM fills the bytes of a word that do not matter from a register that nothing ever writes.
bool is_filler(const Instruction& instruction, const Operand& operand, const BitSet& written) {
  return instruction.source->opcode == "prmt" && !written.test(static_cast<size_t>(operand.slot));
}

// Accumulators and operand a of wgmma, as far as they are registers.
BitSet registers_of_wgmma(const Entry& entry, size_t registers) {
  BitSet found(registers);
  for (const Instruction& instruction : entry.code)
    if (instruction.source->opcode == "wgmma")
      for_each_operand(instruction, [&](const Operand& operand) {
        if (operand.bytes == 4) found.set(static_cast<size_t>(operand.slot));
      });
  return found;
}

}  // namespace

void allocate_registers(Entry& entry, const Function& function) {
  size_t registers = function.registers.size();
  std::vector<BasicBlock> blocks = blocks_of(entry, registers);
  find_liveness(blocks);
  std::vector<Interval> intervals = intervals_of(entry, blocks, registers);
  std::vector<int32_t> slots(registers, -1);

  // What is there from the start keeps a slot of its own.
  BitSet special(registers), own(registers);
  for (auto& [which, index] : entry.specials) special.set(static_cast<size_t>(index));
  own.merge(special);
  const BitSet of_wgmma = registers_of_wgmma(entry, registers);
  own.merge(of_wgmma);  // in use beyond the instructions that name them
  own.merge(blocks[0].live_in);
  auto take_new = [&](size_t r) {
    int32_t& end = function.registers[r] == Type::Pred ? entry.predicates : entry.slots;
    slots[r] = end;
    end += std::max(units_of(function.registers[r]), 1);
  };
  own.for_each(take_new);
  for (auto& [which, index] : entry.specials) index = slots[static_cast<size_t>(index)];
  std::vector<uint8_t> watched(registers, 0);
  blocks[0].live_in.for_each([&](size_t r) {
    if (special.test(r)) return;
    watched[r] = 1;
    bool predicate = function.registers[r] == Type::Pred;
    entry.watched[predicate ? ~slots[r] : slots[r]] =
        static_cast<int32_t>(entry.watched_names.size());
    entry.watched_names.push_back(function.names[r]);
  });

  std::vector<size_t> order;
  for (size_t r = 0; r < registers; ++r)
    if (slots[r] < 0 && intervals[r].last >= 0) order.push_back(r);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(intervals[a].first, a) < std::pair(intervals[b].first, b);
  });
  Pool pools[] = {Pool(0), Pool(1), Pool(2), Pool(4)};
  for (size_t r : order) {
    int units = units_of(function.registers[r]);
    Pool& pool = pools[units == 4 ? 3 : units];
    slots[r] = pool.take(intervals[r], units == 0 ? entry.predicates : entry.slots);
  }

  const BitSet written = written_ones(entry, registers);
  for (Instruction& instruction : entry.code) {
    if (instruction.guard >= 0) {
      instruction.check_defined |= watched[static_cast<size_t>(instruction.guard)] != 0;
      instruction.guard = slots[static_cast<size_t>(instruction.guard)];
    }
    for_each_operand(instruction, [&](const Operand& operand) {
      instruction.check_defined |= watched[static_cast<size_t>(operand.slot)] != 0 &&
                                   !is_filler(instruction, operand, written);
      instruction.check_flight |=
          of_wgmma.test(static_cast<size_t>(operand.slot)) && instruction.source->opcode != "wgmma";
    });
  }
  of_wgmma.for_each([&](size_t r) {
    entry.wgmma_names.resize(static_cast<size_t>(entry.slots));
    entry.wgmma_names[static_cast<size_t>(slots[r])] = function.names[r];
  });
  for (Operand& operand : entry.operands)
    if (operand.slot >= 0) operand.slot = slots[static_cast<size_t>(operand.slot)];
}

}  // namespace kiln::ptx
