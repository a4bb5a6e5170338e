// Which descriptors of wgmma ptxas can tell to be the same in all lanes: it wants them in uniform
// registers, and others it moves there at each product (clock.cpp has the cost). A register differs
// if what gives it does (a thread's index, a load, a shuffle; not redux and vote), if an operand
// differs, or if lanes part at a branch, one way writes it, and it lives where they meet. At a
// branch before a wgmma, which all lanes run together, they do not part.
#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/ptx/liveness.h"

namespace kiln::ptx {
namespace {

bool gives_different(const Instruction& in) {
  const std::string_view opcode = in.source->opcode;
  if (opcode == "ld") return in.space != Space::Param && in.space != Space::Const;
  constexpr std::string_view kThose[] = {"ldu",   "ldmatrix", "atom",  "shfl",      "mbarrier",
                                         "elect", "match",    "wgmma", "activemask"};
  return std::find(std::begin(kThose), std::end(kThose), opcode) != std::end(kThose);
}

bool is_different(Special special) {
  return special <= Special::TidZ || special == Special::LaneId || special == Special::WarpId ||
         (special >= Special::LaneMaskEq && special <= Special::LaneMaskGe);
}

class Finder {
 public:
  Finder(Entry& entry, size_t registers)
      : entry_(entry),
        blocks_(blocks_of(entry, registers)),
        differ_(blocks_.size(), BitSet(registers)) {
    find_liveness(blocks_);
    find_meetings();
    for (const BasicBlock& block : blocks_)
      meets_all_.push_back(
          std::any_of(entry.code.begin() + block.first, entry.code.begin() + block.end,
                      [](const Instruction& in) { return in.source->opcode == "wgmma"; }));
    for (const auto& [special, index] : entry.specials)
      if (is_different(special)) differ_[0].set(static_cast<size_t>(index));
  }

  void run() {
    for (changed_ = true; changed_;) {
      changed_ = false;
      for (size_t block = 0; block < blocks_.size(); ++block) pass(block);
    }
  }

 private:
  void pass(size_t block) {
    BitSet differ = differ_[block];
    bool parts = false;
    for (int32_t i = blocks_[block].first; i < blocks_[block].end; ++i) {
      Instruction& in = entry_.code[static_cast<size_t>(i)];
      const std::string_view opcode = in.source->opcode;
      bool different = in.guard >= 0 && differ.test(static_cast<size_t>(in.guard));
      for_each_operand(in, [&](const Operand& operand) {
        const bool differs =
            operand.role == OperandRole::Use && differ.test(static_cast<size_t>(operand.slot));
        different |= differs;
        if (differs && opcode == "wgmma" && operand.bytes == 8) in.uniform = false;
      });
      parts = different;
      different |= gives_different(in);
      if (opcode == "redux" || opcode == "vote") different = false;
      for_each_operand(in, [&](const Operand& operand) {
        if (operand.role != OperandRole::Define) return;
        if (different)
          differ.set(static_cast<size_t>(operand.slot));
        else if (in.guard < 0)
          differ.reset(static_cast<size_t>(operand.slot));
      });
    }
    for (int32_t to : blocks_[block].successors)
      changed_ |= differ_[static_cast<size_t>(to)].merge(differ);
    if (parts) part(block);
  }

  // Lanes part at its end, and meet where all ways lead; not if all of them must run something
  // together before.
  void part(size_t block) {
    if (meets_[block] < 0) return;
    const auto meet = static_cast<size_t>(meets_[block]);
    const std::vector<size_t> between = ways(block, meets_[block]);
    if (std::any_of(between.begin(), between.end(), [&](size_t way) { return meets_all_[way]; }))
      return;
    for (size_t way : between)
      blocks_[way].writes.for_each([&](size_t reg) {
        if (!blocks_[meet].live_in.test(reg) || differ_[meet].test(reg)) return;
        differ_[meet].set(reg);
        changed_ = true;
      });
  }

  // The blocks that come behind `block` before `meet`.
  std::vector<size_t> ways(size_t block, int32_t meet) const {
    std::vector<uint8_t> seen(blocks_.size());
    std::vector<size_t> work, all;
    const auto add = [&](int32_t to) {
      if (to == meet || seen[static_cast<size_t>(to)]++) return;
      work.push_back(static_cast<size_t>(to));
      all.push_back(static_cast<size_t>(to));
    };
    for (int32_t to : blocks_[block].successors) add(to);
    while (!work.empty()) {
      const size_t next = work.back();
      work.pop_back();
      for (int32_t to : blocks_[next].successors) add(to);
    }
    return all;
  }

  // By block: the next that all ways behind it lead to; −1 if there is none.
  void find_meetings() {
    const size_t count = blocks_.size();
    std::vector<BitSet> come(count, BitSet(count));  // the blocks that must come: it, and behind it
    for (BitSet& all : come)
      for (size_t i = 0; i < count; ++i) all.set(i);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t block = count; block-- > 0;) {
        BitSet all(count);
        bool first = true;
        for (int32_t to : blocks_[block].successors) {
          const BitSet& behind = come[static_cast<size_t>(to)];
          if (std::exchange(first, false))
            all = behind;
          else
            all.keep(behind);
        }
        all.set(block);
        changed |= come[block].keep(all);
      }
    }
    std::vector<size_t> counts;
    for (const BitSet& all : come) counts.push_back(all.count());
    meets_.assign(count, -1);
    for (size_t block = 0; block < count; ++block) {
      if (blocks_[block].successors.size() < 2) continue;
      // What comes first has the most behind it.
      size_t most = 0;
      come[block].for_each([&](size_t other) {
        if (other == block || counts[other] <= most) return;
        most = counts[other];
        meets_[block] = static_cast<int32_t>(other);
      });
    }
  }

  Entry& entry_;
  std::vector<BasicBlock> blocks_;
  std::vector<BitSet> differ_;   // registers, where a block begins
  std::vector<int32_t> meets_;   // by block, of those that part
  std::vector<bool> meets_all_;  // by block: it has a wgmma
  bool changed_ = false;
};

}  // namespace

void find_uniform(Entry& entry, const Function& function) {
  if (std::any_of(entry.code.begin(), entry.code.end(),
                  [](const Instruction& in) { return in.source->opcode == "wgmma"; }))
    Finder(entry, function.registers.size()).run();
}

}  // namespace kiln::ptx
