// Rules of what follows what in a launch: pushes begin and end, slots are used while they are held,
// gemms under way are awaited; and in a role, warps meet before one reads what others wrote.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "ir/verify_impl.h"
#include "ir/walk.h"

namespace kiln {
namespace {

bool is_loop(const Op& op) {
  return op.code == OpCode::For || op.code == OpCode::Selected || op.code == OpCode::Loop;
}

// One region, its ops in order; the regions inside each have their own.
class Order {
 public:
  Order(const Law& law, RegionId region) : law_(law), kernel_(law.kernel), region_(region) {}

  void check() {
    for (OpId id : kernel_.region(region_).ops) {
      const Op& op = kernel_.op(id);
      check_uses(op);
      for (RegionId inner : op.regions) {
        walk(kernel_, inner, [&](OpId deep) {
          check_uses(kernel_.op(deep));
          check_inner_push(kernel_.op(deep));
        });
        Order(law_, inner).check();
      }
      advance(op);
    }
    for (const auto& [channel, begin] : open_)
      law_.fail(*begin, "has no push_end in its region", "every push ends where it began");
    if (!pending_.empty())
      law_.fail(*pending_.front(), "is not awaited in its region",
                "no token crosses the end of a region, nor the back-edge of a loop");
  }

 private:
  // `op` stands in the region or inside an op of it.
  void check_uses(const Op& op) const {
    for (Value operand : op.operands) {
      if (!operand || !kernel_.type(operand).is_storage()) continue;
      auto gone = gone_.find(base_of(kernel_, operand).id);
      if (gone == gone_.end()) continue;
      const bool pushed = gone->second->code == OpCode::PushEnd;
      law_.fail(
          op,
          fmt::format("uses a slot that was {} {}", pushed ? "handed over" : "released",
                      on_line(*gone->second)),
          pushed ? "it is the other role's from then on" : "it may be overwritten from then on");
    }
    for (const Op* gemm : pending_) check_under_way(op, *gemm);
  }

  // What may happen between a gemm_async and its await.
  void check_under_way(const Op& op, const Op& gemm) const {
    const Value c = base_of(kernel_, gemm.operands[2]);
    const auto reads = [&](Value value) {
      return value == base_of(kernel_, gemm.operands[0]) ||
             value == base_of(kernel_, gemm.operands[1]);
    };
    for (const Access& access : accesses(kernel_, op)) {
      const bool chained = op.code == OpCode::GemmAsync && access.effect == Effect::Update;
      if (access.base == c && !chained)
        law_.fail(op,
                  fmt::format("uses the result of the gemm_async {}, which is not awaited yet",
                              on_line(gemm)),
                  "await its token first");
      const bool gives_away = op.code == OpCode::Release || op.code == OpCode::PushEnd;
      if (reads(access.base) && (access.effect != Effect::Read || gives_away))
        law_.fail(op,
                  fmt::format("{} {}, which the gemm_async {} may still be reading",
                              gives_away ? "gives away" : "writes", str(kernel_.type(access.base)),
                              on_line(gemm)),
                  "await its token first");
    }
    // Of all ops of a region only this one is looked at: what is inside a loop is in one region.
    if (is_loop(op))
      law_.fail(op, fmt::format("the gemm_async {} is not awaited before this loop", on_line(gemm)),
                "no token crosses the back-edge of a loop");
  }

  void check_inner_push(const Op& op) const {
    if (op.code == OpCode::PushBegin) require_closed(op);
    if (op.code != OpCode::PushEnd) return;
    auto open = open_.find(op.operands[0].id);
    if (open != open_.end() && open->second->result == op.operands[1])
      fail_other_region(op, *open->second);
  }
  [[noreturn]] void fail_other_region(const Op& op, const Op& begin) const {
    law_.fail(op, fmt::format("the push_begin {} is in another region", on_line(begin)),
              "every push ends where it began");
  }
  void require_closed(const Op& op) const {
    auto open = open_.find(op.operands[0].id);
    if (open != open_.end())
      law_.fail(op, fmt::format("the push begun {} has not ended", on_line(*open->second)),
                "one push at a time of a channel");
  }

  void advance(const Op& op) {
    switch (op.code) {
      case OpCode::PushBegin:
        require_closed(op);
        open_[op.operands[0].id] = &op;
        return;
      case OpCode::PushEnd: {
        auto open = open_.find(op.operands[0].id);
        if (open == open_.end() || open->second->result != op.operands[1])
          fail_other_region(op, kernel_.op(kernel_.def(op.operands[1])));
        open_.erase(open);
        gone_[op.operands[1].id] = &op;
        return;
      }
      case OpCode::Release: gone_[op.operands[1].id] = &op; return;
      case OpCode::GemmAsync: pending_.push_back(&op); return;
      case OpCode::Await: return await(op);
      case OpCode::ExitIf: return check_exit(op);
      default: return;
    }
  }

  void await(const Op& op) {
    const Op& gemm = kernel_.op(kernel_.def(op.operands[0]));
    auto at = std::find(pending_.begin(), pending_.end(), &gemm);
    if (at != pending_.end()) {
      for (auto done = pending_.begin(); done <= at; ++done) awaited_[*done] = &op;
      pending_.erase(pending_.begin(), at + 1);
      return;
    }
    auto before = awaited_.find(&gemm);
    if (before == awaited_.end())
      law_.fail(op, fmt::format("the gemm_async {} is in another region", on_line(gemm)),
                "await it in the region that begins it");
    law_.fail(
        op,
        fmt::format("the gemm_async {} was awaited {}", on_line(gemm), on_line(*before->second)),
        "an await is also for those begun before");
  }

  void check_exit(const Op& op) const {
    for (const auto& [channel, begin] : open_)
      law_.fail(op,
                fmt::format("leaves the loop before the push begun {} has ended", on_line(*begin)),
                "push_end before the exit");
    if (!pending_.empty())
      law_.fail(op,
                fmt::format("leaves the loop before the gemm_async {} is awaited",
                            on_line(*pending_.front())),
                "await it before the exit");
  }

  const Law& law_;
  const Kernel& kernel_;
  const RegionId region_;
  std::map<uint32_t, const Op*> open_;            // push_begin by channel
  std::unordered_map<uint32_t, const Op*> gone_;  // slots: by what took them away
  std::vector<const Op*> pending_;                // gemm_async, in order of issue
  std::unordered_map<const Op*, const Op*> awaited_;
};

// Follows which shared tiles were written since the warps of a role last met. A place of unknown
// layout says nothing of who writes it: not followed.
class Meetings {
 public:
  explicit Meetings(const Law& law) : law_(law), kernel_(law.kernel) {}

  // By the tile's value: the op that wrote it.
  using Written = std::map<uint32_t, const Op*>;

  // In: before the region. Returns: after it. `exits` gains what holds after each exit_if of it.
  Written region(RegionId region, Written written, Written& exits) {
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (op.result) written.erase(op.result.id);  // a new one each time
      check_reads(op, written);
      if (op.code == OpCode::Barrier) written.clear();
      note_writes(op, written);
      if (!op.regions.empty()) written = inside(op, std::move(written), exits);
    }
    return written;
  }

 private:
  Written inside(const Op& op, Written written, Written& exits) {
    if (op.code == OpCode::ExitIf) {
      join(exits, region(op.regions[0], written, exits));
      return written;
    }
    Written after;
    if (op.code == OpCode::Parallel) {  // an iteration may read what it wrote itself
      after = written;
      walk(kernel_, op.regions[0], [&](OpId id) {
        check_reads(kernel_.op(id), written);
        note_writes(kernel_.op(id), after);
      });
      return after;
    }
    if (op.code == OpCode::Loop) {  // twice: once more round the back-edge
      written = region(op.regions[0], written, after);
      region(op.regions[0], written, after);
      return after;
    }
    if (op.code == OpCode::For || op.code == OpCode::Selected) {
      after = written;
      for (int round = 0; round < 2; ++round)
        join(after, written = region(op.regions[0], written, exits));
      return after;
    }
    if (op.regions.size() == 1) after = written;  // an if whose condition does not hold
    for (RegionId inner : op.regions) join(after, region(inner, written, exits));
    return after;
  }

  static void join(Written& into, const Written& from) { into.insert(from.begin(), from.end()); }

  bool is_followed(Value base) const {
    if (kernel_.type(base).space != Space::Shared) return false;
    const Op* place = channel_of(kernel_, base);
    if (!place) place = kernel_.def_as(base, OpCode::Alloc);
    return place && !place->word("layout").empty();
  }

  template <class Visit>
  void each_effect(const Op& op, Visit&& visit) const {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Effect effect = info(op.code).operand(i).effect;
      if (op.operands[i] && effect != Effect::None)
        visit(base_of(kernel_, op.operands[i]), op.code == OpCode::Store ? Effect::Write : effect);
    }
  }

  void check_reads(const Op& op, const Written& written) const {
    switch (op.code) {
      case OpCode::StoreAsync:  // each warp its own, or after a barrier of its own
      case OpCode::PushEnd:
      case OpCode::Release:
      case OpCode::Message: return;
      default: break;
    }
    each_effect(op, [&](Value base, Effect effect) {
      auto by = written.find(base.id);
      if (effect != Effect::Write && by != written.end())
        law_.fail(op,
                  fmt::format("reads {}, which other warps wrote {}, without a barrier between",
                              str(kernel_.type(base)), on_line(*by->second)),
                  "insert a barrier");
    });
  }

  void note_writes(const Op& op, Written& written) const {
    if (op.code == OpCode::Reduce || op.code == OpCode::CopyAsync) return;  // they synchronise
    each_effect(op, [&](Value base, Effect effect) {
      if (effect != Effect::Read && is_followed(base)) written[base.id] = &op;
    });
  }

  const Law& law_;
  const Kernel& kernel_;
};

}  // namespace

void check_order(const Law& law, const Op& launch) {
  Order(law, launch.regions[0]).check();
  walk(law.kernel, launch.regions[0], [&](OpId id) {
    const Op& roles = law.kernel.op(id);
    if (roles.code != OpCode::Roles) return;
    for (size_t role = 0; role < roles.regions.size(); ++role) {
      if (roles.ints("warps")[role] == 1) continue;
      Meetings::Written exits;
      Meetings(law).region(roles.regions[role], {}, exits);
    }
  });
}

}  // namespace kiln
