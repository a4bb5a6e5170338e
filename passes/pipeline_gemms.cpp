// for i in begin … end { head(i); tail(i) }   of which the head gives s, becomes
//
//     if begin < end {
//       head(begin) → s
//       for i in begin … end-2 by 2 {
//         head(i+1) → t;  tail(i) of s
//         head(i+2) → s;  tail(i+1) of t
//       }
//       if one more than the last is left { head(end-1) → t;  tail(end-2) of s;  s = t }
//       tail(end-1) of s
//     }
//
// so that a gemm, in the head, has no need to wait for what the tail does with the result of the
// one before, nor the other way round: they are in one straight line of code. s and t are two names
// of registers, and no round moves any. All that is done to a channel goes where its pop goes; what
// fetches for channels of both is split. RoundCut says what the head is and whether it may go
// before the tail; how many registers a thread has, whether it is worth it.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "ir/builder.h"
#include "ir/walk.h"
#include "passes/fragment_registers.h"
#include "passes/gpu_target.h"
#include "passes/loops.h"
#include "passes/passes.h"
#include "passes/reason.h"
#include "passes/round_cut_impl.h"

namespace kiln {
namespace {

class Rotation {
 public:
  using Part = RoundCut::Part;

  Rotation(Kernel& kernel, RegionId around, OpId loop, const RoundCut& cut)
      : kernel_(kernel), around_(around), loop_(loop), cut_(cut) {}

  void run() {
    std::vector<OpId> ops;
    ops.swap(kernel_.region(around_).ops);
    Builder build(kernel_, around_);
    for (OpId id : ops) {
      if (id != loop_) {
        kernel_.region(around_).ops.push_back(id);
        continue;
      }
      build.loc = kernel_.op(id).loc;
      rotate(build);
    }
  }

 private:
  const Op& loop() const { return kernel_.op(loop_); }
  Value end() const { return loop().operands[1]; }

  void rotate(Builder& build) {
    const Value begin = loop().operands[0];
    const Value any = build.compare("lt", begin, end());
    Builder::Scope scope(build, build.add_region(build.emit(OpCode::If, {any})));
    ValueMap first = names(begin);
    for (Value tile : cut_.twice())
      first[tile.id] = cut_.is_free(kernel_.def(tile)) ? another(build, tile) : tile;
    first_head(build, first);
    pairs(build, first);
    last_rounds(build, first);
  }

  ValueMap names(Value index) const {
    return {{kernel_.region(loop().regions[0]).args[0].id, index}};
  }
  ValueMap names(Value index, const ValueMap& tiles) const {
    ValueMap map = names(index);
    for (Value tile : cut_.twice()) map[tile.id] = tiles.at(tile.id);
    return map;
  }
  Value another(Builder& build, Value tile) {
    ValueMap map;
    return kernel_.op(clone_op(kernel_, kernel_.def(tile), build.region(), map)).result;
  }
  ValueMap other_tiles(Builder& build) {
    ValueMap tiles;
    for (Value tile : cut_.twice()) tiles[tile.id] = another(build, tile);
    return tiles;
  }

  void first_head(Builder& build, ValueMap& map) {
    for (size_t at = 0; at < cut_.ops().size(); ++at) {
      switch (cut_.part(at)) {
        case Part::Head: place(build, at, map); break;
        case Part::Fetch: fetch(build, at, map, true); break;
        case Part::Commit: place(build, at, map); break;
        default: break;
      }
    }
    build.loc = loop().loc;
  }

  // Rounds i with i + 2 < end, two at a time.
  void pairs(Builder& build, const ValueMap& first) {
    const Op op = loop();
    Value two = build.constant(I32, 2);
    const RegionId region = build.add_region(
        build.emit(OpCode::For, {op.operands[0], before_end(build, 2), two}, op.attrs));
    Value index = kernel_.add_argument(region, Type::scalar(I32));
    Builder::Scope scope(build, region);
    const ValueMap others = other_tiles(build);
    Value second = build.binary(OpCode::Add, index, build.constant(I32, 1));
    Value third = build.binary(OpCode::Add, index, two);
    ValueMap now = names(index, first), next = names(second, others), after = names(third, first);
    round(build, now, next);
    round(build, next, after);
  }
  // end - rounds, or the least number that there is.
  Value before_end(Builder& build, int64_t rounds) {
    constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
    if (const auto known = constant_int(kernel_, end()))
      return build.constant(I32, std::max(*known, kLeast + rounds) - rounds);
    Value least = build.constant(I32, kLeast + rounds);
    Value enough = build.binary(OpCode::Max, end(), least);
    return build.binary(OpCode::Sub, enough, build.constant(I32, rounds));
  }

  void last_rounds(Builder& build, const ValueMap& first) {
    Value one = build.constant(I32, 1), zero = build.constant(I32, 0);
    Value last = build.binary(OpCode::Sub, end(), one);
    Value rounds = build.binary(OpCode::Sub, end(), loop().operands[0]);
    Value is_even = build.compare("eq", build.binary(OpCode::And, rounds, one), zero);
    {
      Builder::Scope scope(build, build.add_region(build.emit(OpCode::If, {is_even})));
      const ValueMap others = other_tiles(build);
      ValueMap now = names(build.binary(OpCode::Sub, last, one), first), next = names(last, others);
      round(build, now, next);
      for (Value tile : cut_.twice()) move(build, others.at(tile.id), first.at(tile.id));
    }
    ValueMap map = names(last, first);
    for (size_t at = 0; at < cut_.ops().size(); ++at) of_tail(build, at, map);
  }
  void move(Builder& build, Value from, Value to) {
    if (kernel_.type(to).rank() == 0) return build.store(build.load(from), to);
    Attrs attrs;
    attrs.set("instruction", std::string("vector"));
    attrs.set("reason", std::string("between registers"));
    build.emit(OpCode::Copy, {from, to}, std::move(attrs));
  }

  // The tail of a round, with the head of the next.
  void round(Builder& build, ValueMap& now, ValueMap& next) {
    for (size_t at = 0; at < cut_.top(); ++at) {
      if (cut_.part(at) == Part::Head) place(build, at, next);
      if (cut_.part(at) == Part::Fetch) fetch(build, at, next, true);
      of_tail(build, at, now);
    }
    for (size_t at = cut_.top(); at < cut_.start(); ++at) of_tail(build, at, now);
    for (size_t at = cut_.top(); at < cut_.ops().size(); ++at)
      if (cut_.part(at) == Part::Head) place(build, at, next);
    for (size_t at = cut_.start(); at < cut_.ops().size(); ++at) of_tail(build, at, now);
    build.loc = loop().loc;
  }
  void of_tail(Builder& build, size_t at, ValueMap& map) {
    switch (cut_.part(at)) {
      case Part::Tail:
      case Part::Commit: return place(build, at, map);
      case Part::Fetch: return fetch(build, at, map, false);
      default: return;
    }
  }

  // A copy of the op, after the free ones that it needs.
  void place(Builder& build, size_t at, ValueMap& map) {
    const OpId id = cut_.ops()[at];
    find_operands(build, id, map);
    clone_op(kernel_, id, build.region(), map);
  }
  void find_operands(Builder& build, OpId id, ValueMap& map) {
    for (Value operand : std::vector<Value>(kernel_.op(id).operands)) {
      const OpId def = operand ? kernel_.def(operand) : OpId();
      if (!def || map.contains(operand.id) || !cut_.is_free(def)) continue;
      find_operands(build, def, map);
      clone_op(kernel_, def, build.region(), map);
    }
    for (RegionId region : std::vector<RegionId>(kernel_.op(id).regions))
      for (OpId inner : std::vector<OpId>(kernel_.region(region).ops))
        find_operands(build, inner, map);
  }

  // What the branch pushes to early channels, or to the others.
  void fetch(Builder& build, size_t at, ValueMap& map, bool early) {
    const OpId id = cut_.ops()[at];
    if (!pushes(id, early)) return;
    find_operands(build, id, map);
    fetch_branch(build, id, map, early);
  }
  void fetch_branch(Builder& build, OpId id, ValueMap& map, bool early) {
    const Op op = kernel_.op(id);
    build.loc = op.loc;
    const OpId made = build.emit(OpCode::If, {mapped(map, op.operands[0])});
    for (RegionId region : op.regions) {
      Builder::Scope scope(build, build.add_region(made));
      for (OpId inner : std::vector<OpId>(kernel_.region(region).ops)) {
        const OpCode code = kernel_.op(inner).code;
        if (code == OpCode::If) {
          if (pushes(inner, early)) fetch_branch(build, inner, map, early);
        } else if (!is_push(inner) || is_of(inner, early)) {
          clone_op(kernel_, inner, build.region(), map);
        }
      }
      drop_unused(build.region());
    }
  }
  bool is_push(OpId id) const {
    const OpCode code = kernel_.op(id).code;
    return code == OpCode::PushBegin || code == OpCode::PushEnd || code == OpCode::CopyAsync;
  }
  bool is_of(OpId id, bool early) const {
    const Op& op = kernel_.op(id);
    const Value channel =
        op.code == OpCode::CopyAsync ? channel_of(kernel_, op.operands[1])->result : op.operands[0];
    return cut_.is_early(channel) == early;
  }
  bool pushes(OpId id, bool early) const {
    bool found = false;
    for (RegionId region : kernel_.op(id).regions)
      walk(kernel_, region, [&](OpId inner) { found |= is_push(inner) && is_of(inner, early); });
    return found;
  }
  void drop_unused(RegionId region) {
    std::vector<OpId>& ops = kernel_.region(region).ops;
    std::set<Value> used;
    for (size_t at = ops.size(); at-- > 0;) {
      const Op& op = kernel_.op(ops[at]);
      const bool may_go = info(op.code).pure || op.code == OpCode::Load;
      if (may_go && !used.contains(op.result)) {
        ops.erase(ops.begin() + static_cast<ptrdiff_t>(at));
        continue;
      }
      used.insert(op.operands.begin(), op.operands.end());
      for (RegionId inner : op.regions)
        walk(kernel_, inner, [&](OpId id) {
          used.insert(kernel_.op(id).operands.begin(), kernel_.op(id).operands.end());
        });
    }
  }

  Kernel& kernel_;
  const RegionId around_;
  const OpId loop_;
  const RoundCut& cut_;
};

// The steps of a round as it would be, for the count of registers.
std::vector<RoundStep> steps_of(const RoundCut& cut, bool rotated) {
  using Part = RoundCut::Part;
  std::vector<RoundStep> steps;
  const auto add = [&](size_t from, size_t to, bool head, bool tail) {
    for (size_t at = from; at < to; ++at) {
      const bool is_head = cut.part(at) == Part::Head;
      if (is_head ? head : tail && cut.part(at) == Part::Tail)
        steps.push_back({cut.ops()[at], is_head && rotated});
    }
  };
  const size_t all = cut.ops().size();
  if (!rotated) {
    add(0, all, true, true);
    return steps;
  }
  add(0, cut.top(), true, true);
  add(cut.top(), cut.start(), false, true);
  add(cut.top(), all, true, false);
  add(cut.start(), all, false, true);
  return steps;
}

// As far as that is plain from the loop's bounds.
std::optional<int64_t> most_rounds(const Kernel& kernel, const Op& loop) {
  const auto begin = constant_int(kernel, loop.operands[0]);
  std::optional<int64_t> end = constant_int(kernel, loop.operands[1]);
  if (const Op* least = kernel.def_as(loop.operands[1], OpCode::Min))
    for (Value bound : least->operands)
      if (const auto known = constant_int(kernel, bound)) end = known;
  if (!begin || !end) return std::nullopt;
  return std::max(*end - *begin, int64_t{0});
}

// Why it would cost more than it gives; empty if it would not.
std::string why_not_worth(const Kernel& kernel, OpId launch, OpId loop, const RoundCut& cut,
                          std::string& price) {
  if (const auto rounds = most_rounds(kernel, kernel.op(loop)); rounds && *rounds < 3)
    return fmt::format("the loop has {} round{} at most", *rounds, *rounds == 1 ? "" : "s");
  if (cut.reads_tensors()) return "what its gemm reads is not fetched ahead";
  const int64_t serial =
      registers_of_round(kernel, launch, loop, steps_of(cut, false), cut.twice());
  const int64_t ahead = registers_of_round(kernel, launch, loop, steps_of(cut, true), cut.twice());
  price = fmt::format("about {} registers a thread instead of {}", ahead, serial);
  if (ahead > GpuTarget::kMostRegisters)
    return fmt::format("it would take {}, and there are {}", price, GpuTarget::kMostRegisters);
  const int64_t now = blocks_at_once(kernel, launch, serial);
  const int64_t then = blocks_at_once(kernel, launch, ahead);
  if (then < now)
    return fmt::format("it would take {}, which is {} instead of {} blocks of {} warps at once",
                       price, then, now, kernel.op(launch).integer("warps"));
  return "";
}

void overlap(Kernel& kernel, OpId launch, const PlacedLoop& found) {
  const std::string schedule = kernel.op(found.loop).word("schedule");
  const RoundCut cut(kernel, launch, found.loop);
  if (!cut.gemm() && schedule != "overlap") return;
  std::string why = cut.why_not(), price;
  if (schedule == "serial") why = "the loop's schedule is serial";
  if (why.empty()) {
    why = why_not_worth(kernel, launch, found.loop, cut, price);
    if (schedule == "overlap") why = "";
  }
  if (!why.empty())
    return add_reason(kernel.op(found.loop), "gemms of two rounds do not overlap: " + why);
  add_reason(kernel.op(found.loop),
             fmt::format("the {} is computed a round ahead{}{}", op_in_words(kernel.op(cut.gemm())),
                         price.empty() ? "" : ": ", price));
  Rotation(kernel, found.around, found.loop, cut).run();
}

}  // namespace

void pipeline_gemms(Kernel& kernel) {
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops)) {
    if (kernel.op(id).code != OpCode::Launch) continue;
    const auto may = [](const Op& op) {
      return op.word("kind") == "pipelined" || op.word("schedule") == "overlap";
    };
    for (const PlacedLoop& found : loops_of(kernel, id, may)) overlap(kernel, id, found);
  }
}

}  // namespace kiln
