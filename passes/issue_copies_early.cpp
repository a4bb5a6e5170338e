// A cp_async copy, with the slices, indices and loads that it alone or others above need, goes up
// in its region until it meets an op that one of them depends on, a loop, or another cp_async copy:
// those are issued in the order in which they are used, what is fetched for later rounds last. Only
// past work does it go: else the text would change for nothing.
#include <algorithm>

#include "ir/walk.h"
#include "passes/dependence.h"
#include "passes/gpu_target.h"
#include "passes/memory_plan_impl.h"
#include "passes/passes.h"

namespace kiln {
namespace {

bool is_async_copy(const Op& op) {
  return op.code == OpCode::Copy && op.word("instruction") == "cp_async";
}

// One that may be issued whenever what it depends on is done.
bool is_free(const Op& op) {
  return is_async_copy(op) && op.word("group") == "own";
}

class Raiser {
 public:
  Raiser(Kernel& kernel, RegionId region) : kernel_(kernel), ops_(kernel.region(region).ops) {}

  void run() {
    for (size_t at = 0; at < ops_.size(); ++at)
      if (is_free(kernel_.op(ops_[at]))) raise(at);
  }

 private:
  void raise(size_t at) {
    std::vector<OpId> moving = {ops_[at]}, passed;  // last first
    size_t moved = 0, left_behind = 0;              // of them, at the highest place so far
    for (size_t above = at; above-- > 0;) {
      const Op& op = kernel_.op(ops_[above]);
      if (closes_fetch(above) && may_go_before(moving, kernel_.op(ops_[above - 1]))) {
        passed.insert(passed.end(), {ops_[above], ops_[above - 1]});
        moved = moving.size(), left_behind = passed.size();
        --above;
        continue;
      }
      const bool needed = is_needed(op, moving);
      const bool may_move = info(op.code).pure || op.code == OpCode::Load;
      if (needed ? !may_move : !may_pass(moving, op)) break;
      (needed ? moving : passed).push_back(ops_[above]);
      if (info(op.code).pure || op.code == OpCode::Alloc) continue;
      moved = moving.size(), left_behind = passed.size();
    }
    if (moved == 0) return;
    moving.resize(moved);
    passed.resize(left_behind);
    auto out = ops_.begin() + static_cast<ptrdiff_t>(at + 1 - moved - left_behind);
    out = std::reverse_copy(moving.begin(), moving.end(), out);
    std::reverse_copy(passed.begin(), passed.end(), out);
  }

  bool is_needed(const Op& op, const std::vector<OpId>& by) const {
    return op.result && std::any_of(by.begin(), by.end(), [&](OpId user) {
             const std::vector<Value>& operands = kernel_.op(user).operands;
             return std::find(operands.begin(), operands.end(), op.result) != operands.end();
           });
  }

  // The commit of what is fetched for later rounds, in a branch right above it. A copy for this
  // round goes first, so that nobody who waits for it waits for those.
  bool closes_fetch(size_t at) const {
    if (at == 0 || kernel_.op(ops_[at]).code != OpCode::CommitCopies) return false;
    const Op& branch = kernel_.op(ops_[at - 1]);
    bool fetches = branch.code == OpCode::If;
    for (RegionId region : branch.regions)
      walk(kernel_, region, [&](OpId id) {
        const Op& op = kernel_.op(id);
        fetches &= !is_free(op) && op.code != OpCode::CommitCopies && op.code != OpCode::Barrier &&
                   op.code != OpCode::WaitCopies;
      });
    return fetches;
  }

  bool may_go_before(const std::vector<OpId>& moving, const Op& op) const {
    return std::none_of(moving.begin(), moving.end(), [&](OpId id) {
      return dependence(kernel_, op, kernel_.op(id)).has_value();
    });
  }

  bool may_pass(const std::vector<OpId>& moving, const Op& op) const {
    switch (op.code) {
      case OpCode::For:
      case OpCode::Selected:
      case OpCode::Loop:
      case OpCode::ExitIf:
      case OpCode::Barrier:
      case OpCode::WaitCopies:
      case OpCode::CommitCopies: return false;
      default: break;
    }
    bool free = !is_async_copy(op);
    for (RegionId region : op.regions)
      walk(kernel_, region, [&](OpId id) {
        const Op& inner = kernel_.op(id);
        free &= inner.code != OpCode::For && inner.code != OpCode::Selected &&
                inner.code != OpCode::Loop && !is_async_copy(inner);
      });
    return free && may_go_before(moving, op);
  }

  Kernel& kernel_;
  std::vector<OpId>& ops_;
};

}  // namespace

void issue_copies_early(Kernel& kernel) {
  const int64_t limit = gpu_target(kernel.target).shared_per_block;
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops)) {
    if (kernel.op(id).code != OpCode::Launch) continue;
    std::vector<std::pair<RegionId, std::vector<OpId>>> before;
    walk_regions(kernel, kernel.op(id).regions[0], [&](RegionId region) {
      before.push_back({region, kernel.region(region).ops});
      Raiser(kernel, region).run();
    });
    if (shared_plan(kernel, id).bytes <= limit) continue;
    for (auto& [region, ops] : before) kernel.region(region).ops = std::move(ops);
  }
}

}  // namespace kiln
