// Marks what contributes to a tensor, then drops the rest. A write to a tile contributes if
// something that contributes reads the tile: a tile that only feeds itself goes as well. Launches
// and the interface stay: they are the kernel's shape to its callers. So do barriers and waits, and
// the cp_async copies that waits count, and in the late IR all that another role may wait for. What
// is written to a slot of a channel is read under other names.
#include <unordered_map>
#include <unordered_set>

#include "ir/walk.h"
#include "passes/passes.h"

namespace kiln {
namespace {

class Marker {
 public:
  explicit Marker(Kernel& kernel) : kernel_(kernel) { survey(kernel.body, {}); }

  void run() {
    while (!pending_.empty()) {
      const Op& op = kernel_.op(pending_.back());
      OpId around = around_[pending_.back().id];
      pending_.pop_back();
      if (around) mark(around);
      for (Value operand : op.operands)
        if (OpId def = operand ? kernel_.def(operand) : OpId{}) mark(def);
      for (const Access& access : accesses(kernel_, op)) {
        if (access.effect == Effect::Write) continue;
        for (OpId writer : writers_[access.base.id]) mark(writer);
      }
    }
    sweep(kernel_.body);
  }

 private:
  void survey(RegionId region, OpId around) {
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      around_[id.id] = around;
      bool contributes = always_stays(op);
      for (const Access& access : accesses(kernel_, op)) {
        if (access.effect == Effect::Read) continue;
        writers_[access.base.id].push_back(id);
        contributes |= kernel_.type(access.base).space == Space::Global ||
                       channel_of(kernel_, access.base) != nullptr;
      }
      if (contributes) mark(id);
      for (RegionId inner : op.regions) survey(inner, id);
    }
  }

  static bool always_stays(const Op& op) {
    switch (op.code) {
      case OpCode::Dim:
      case OpCode::Param:
      case OpCode::Tensor:
      case OpCode::Launch:
      case OpCode::Barrier:
      case OpCode::WaitCopies:
      case OpCode::CommitCopies:
      case OpCode::DeviceAssert:
      case OpCode::Watch:
      case OpCode::Roles:
      case OpCode::Loop:
      case OpCode::ExitIf:
      case OpCode::Channel:
      case OpCode::PushBegin:
      case OpCode::PushEnd:
      case OpCode::Pop:
      case OpCode::Release:
      case OpCode::AwaitStores:
      case OpCode::Await: return true;
      case OpCode::Copy: return op.word("instruction") == "cp_async";
      default: return false;
    }
  }

  void mark(OpId id) {
    if (live_.insert(id.id).second) pending_.push_back(id);
  }

  void sweep(RegionId region) {
    std::erase_if(kernel_.region(region).ops, [&](OpId id) { return !live_.contains(id.id); });
    for (OpId id : kernel_.region(region).ops) {
      Op& op = kernel_.op(id);
      for (RegionId inner : op.regions) sweep(inner);
      bool empty_else = op.regions.size() == 2 && kernel_.region(op.regions[1]).ops.empty();
      if (empty_else) op.regions.pop_back();
    }
  }

  Kernel& kernel_;
  std::unordered_map<uint32_t, OpId> around_;                // the op whose region an op is in
  std::unordered_map<uint32_t, std::vector<OpId>> writers_;  // by base
  std::unordered_set<uint32_t> live_;
  std::vector<OpId> pending_;
};

}  // namespace

void dead_code(Kernel& kernel) {
  Marker(kernel).run();
}

}  // namespace kiln
