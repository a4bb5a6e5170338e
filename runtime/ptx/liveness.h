// The basic blocks of an entry, and which virtual registers live where. Before registers get slots:
// an operand's slot is the register's index.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/ptx/program.h"

namespace kiln::ptx {

class BitSet {
 public:
  explicit BitSet(size_t bits = 0) : words_((bits + 63) / 64) {}
  bool test(size_t i) const { return words_[i / 64] >> (i % 64) & 1; }
  void set(size_t i) { words_[i / 64] |= uint64_t{1} << (i % 64); }
  void reset(size_t i) { words_[i / 64] &= ~(uint64_t{1} << (i % 64)); }
  // this |= a & ~b, or |= a; whether that changed it.
  bool merge(const BitSet& a, const BitSet* without = nullptr) {
    uint64_t changed = 0;
    for (size_t i = 0; i < words_.size(); ++i) {
      uint64_t now = words_[i] | (without ? a.words_[i] & ~without->words_[i] : a.words_[i]);
      changed |= now ^ words_[i];
      words_[i] = now;
    }
    return changed != 0;
  }
  // this &= other; whether that changed it.
  bool keep(const BitSet& other) {
    uint64_t changed = 0;
    for (size_t i = 0; i < words_.size(); ++i)
      changed |= std::exchange(words_[i], words_[i] & other.words_[i]) & ~other.words_[i];
    return changed != 0;
  }
  size_t count() const {
    size_t all = 0;
    for (uint64_t word : words_) all += static_cast<size_t>(std::popcount(word));
    return all;
  }
  template <class F>
  void for_each(F f) const {
    for (size_t i = 0; i < words_.size(); ++i)
      for (uint64_t rest = words_[i]; rest != 0; rest &= rest - 1)
        f(i * 64 + static_cast<size_t>(std::countr_zero(rest)));
  }

 private:
  std::vector<uint64_t> words_;
};

struct BasicBlock {
  int32_t first = 0, end = 0;
  std::vector<int32_t> successors;
  BitSet uses, defines, live_in, live_out;  // defines: whatever happens
  BitSet writes;                            // perhaps
};

template <class F>
void for_each_operand(const Instruction& instruction, F f) {
  for (uint32_t i = 0; i < instruction.operands; ++i)
    if (instruction.operand[i].slot >= 0) f(instruction.operand[i]);
}

std::vector<BasicBlock> blocks_of(const Entry& entry, size_t registers);
void find_liveness(std::vector<BasicBlock>& blocks);

}  // namespace kiln::ptx
