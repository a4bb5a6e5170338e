#include <algorithm>

#include "passes/passes.h"

namespace kiln {
namespace {

// Regions are rebuilt in program order with all enclosing ones open, so an op that belongs to an
// outer region is appended there: just before the loop, after everything it depends on.
class Hoister {
 public:
  explicit Hoister(Kernel& kernel) : kernel_(kernel), level_(kernel.value_count(), 0) {}

  void region(RegionId id, bool is_loop) {
    open_.push_back({{}, is_loop});
    for (Value arg : kernel_.region(id).args) level_[arg.id] = innermost();
    for (OpId op_id : std::vector<OpId>(kernel_.region(id).ops)) {
      const Op& op = kernel_.op(op_id);
      for (RegionId inner : op.regions) region(inner, repeats(op));
      size_t level = info(op.code).pure ? home(op) : innermost();
      open_[level].ops.push_back(op_id);
      if (op.result) level_[op.result.id] = level;
    }
    kernel_.region(id).ops = std::move(open_.back().ops);
    open_.pop_back();
  }

 private:
  static constexpr size_t kLaunch = 1;  // level of a launch's region; the top level is the host's

  // Does it run its regions again and again? Out of others nothing is gained by moving.
  static bool repeats(const Op& op) {
    return op.code != OpCode::If && op.code != OpCode::ExitIf && op.code != OpCode::Roles;
  }

  size_t innermost() const { return open_.size() - 1; }

  // The level around the outermost loop in which the operands do not change. Leaving an `if` alone
  // would only compute what might not be needed.
  size_t home(const Op& op) const {
    size_t lowest = kLaunch;
    for (Value operand : op.operands) lowest = std::max(lowest, level_[operand.id]);
    for (size_t level = lowest + 1; level <= innermost(); ++level)
      if (open_[level].is_loop) return level - 1;
    return innermost();
  }

  struct Open {
    std::vector<OpId> ops;
    bool is_loop;
  };
  Kernel& kernel_;
  std::vector<size_t> level_;  // index in open_ of the region that defines a value
  std::vector<Open> open_;
};

}  // namespace

void hoist_invariants(Kernel& kernel) {
  Hoister(kernel).region(kernel.body, false);
}

}  // namespace kiln
