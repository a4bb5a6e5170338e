// An independent look for races in a lowered kernel: its launches are run as lists of accesses to
// the memory that threads share, and each pair of accesses without a barrier between is looked at.
// Nothing is shared with the passes that insert barriers.
//
// A launch is run on all ways through it (traces.h); but one with rings, where only what is counted
// keeps the slots apart, on what its scalars say, with random sizes and contents of tensors.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "ir/evaluate_impl.h"
#include "ir/kernel.h"
#include "ir/layout/tile_layout.h"
#include "ir/walk.h"
#include "tests/passes/traces.h"

namespace kiln::testing {

class RaceCheck {
 public:
  explicit RaceCheck(const Kernel& kernel, int most_traces = 2000)
      : kernel_(kernel), most_traces_(most_traces) {}

  // The first race found, in words; empty if there is none.
  std::string find() {
    for (OpId id : kernel_.region(kernel_.body).ops) {
      if (kernel_.op(id).code != OpCode::Launch) continue;
      rings_ = false;
      walk(kernel_, kernel_.op(id).regions[0],
           [&](OpId inner) { rings_ |= is_ordered(kernel_.op(inner)); });
      for (int i = 0; rings_ && i < most_traces_ && race_.empty(); ++i) simulate(kernel_.op(id));
      if (rings_) continue;
      Traces::each(kernel_, kernel_.op(id).regions[0], most_traces_, [&](const Trace& trace) {
        start();
        for (const Step& step : trace)
          if (race_.empty()) run(step);
        return race_.empty();
      });
    }
    return race_;
  }

 private:
  struct Interval {
    int64_t low = 0, high = 0;  // both included
  };
  using Box = std::vector<Interval>;
  struct Touch {
    const Op* op = nullptr;
    Value base;
    bool writes = false;
    int64_t begin = 0, end = 0;  // bytes of shared memory
    Box box;                     // elements of a tensor
  };
  using Group = std::vector<Touch>;  // of cp_async copies

  void start() {
    pending_.clear();
    groups_.clear();
    open_.clear();
    values_.clear();
    variables_.clear();
    steps_ = 0;
  }

  // ---- What the kernel's scalars say
  static constexpr int kMostSteps = 20000;  // of a launch; longer ones are cut

  void simulate(const Op& launch) {
    start();
    seed_ = random_();
    simulate(launch.regions[0]);
  }
  bool simulate(RegionId region) {  // false at the end of all
    for (OpId id : kernel_.region(region).ops)
      if (!simulate_one(kernel_.op(id))) return false;
    return true;
  }
  bool simulate_one(const Op& op) {
    if (!race_.empty() || ++steps_ > kMostSteps) return false;
    if (op.code == OpCode::If) {
      const size_t side = value(op.operands[0]).low ? 0 : 1;
      return side >= op.regions.size() || simulate(op.regions[side]);
    }
    if (op.code == OpCode::Loop) {
      while (true)
        for (OpId id : kernel_.region(op.regions[0]).ops) {
          const Op& inner = kernel_.op(id);
          if (inner.code != OpCode::ExitIf) {
            if (!simulate_one(inner)) return false;
          } else if (value(inner.operands[0]).low) {
            return simulate(inner.regions[0]);
          }
        }
    }
    if (op.code != OpCode::For) {
      run({&op});
      return true;
    }
    const int64_t begin = value(op.operands[0]).low, end = value(op.operands[1]).low;
    const int64_t step = std::max<int64_t>(1, value(op.operands[2]).low);
    for (int64_t i = begin; i < end; i += step) {
      values_[kernel_.region(op.regions[0]).args[0].id] = {i, i};
      if (!simulate(op.regions[0])) return false;
    }
    return true;
  }

  int64_t noise(std::initializer_list<int64_t> of) const {
    uint64_t hash = seed_;
    for (int64_t each : of) hash = (hash ^ static_cast<uint64_t>(each)) * 0x9E3779B97F4A7C15u;
    return static_cast<int64_t>(hash >> 33);
  }
  bool is_large() const { return noise({0}) % 8 == 0; }
  // A size, a block's index, what a tensor holds: the same wherever it is asked for.
  Interval made_up(Value v) const {
    static constexpr int64_t kSizes[] = {0, 1, 2, 3, 5, 17, 64, 100, 129, 200, 256, 300, 640};
    static constexpr int64_t kLarge[] = {1, 700, 5000, 40000, 90000};  // now and then, all together
    const Type& type = kernel_.type(v);
    const int64_t number = noise({v.id});
    int64_t chosen = type.dtype == Bool ? number % 2 : number % 4;
    if (kernel_.def_as(v, OpCode::Dim))
      chosen =
          is_large() ? kLarge[number % std::ssize(kLarge)] : kSizes[number % std::ssize(kSizes)];
    return {chosen, chosen};
  }
  Interval loaded(const Op& op) {
    const Value base = base_of(kernel_, op.operands[0]);
    if (auto known = variables_.find(base.id); known != variables_.end()) return known->second;
    int64_t place = base.id;
    for (size_t i = 1; i < op.operands.size(); ++i)
      place = noise({place, value(op.operands[i]).low});
    const int64_t number = noise({place, 1});
    const int64_t most = is_large() && kernel_.type(base).space == Space::Global ? 600 : 12;
    const int64_t chosen = kernel_.type(op.result).dtype == Bool ? number % 2 : number % most - 1;
    return {chosen, chosen};
  }
  // None unless all is known and whole numbers.
  std::optional<Interval> computed(const Op& op) {
    if (!info(op.code).pure || is_float(kernel_.type(op.result).dtype)) return std::nullopt;
    Scalar in[3];
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const DType dtype = kernel_.type(op.operands[i]).dtype;
      const Interval from = value(op.operands[i]);
      if (from.low != from.high || is_float(dtype)) return std::nullopt;
      in[i] = Scalar::of_int(dtype, from.low);
    }
    const Comparison comparison = op.code == OpCode::Compare ? comparison_of(op) : Comparison::Eq;
    const int64_t result = apply(op.code, kernel_.type(op.result).dtype, comparison, in).i;
    return Interval{result, result};
  }

  void run(const Step& step) {
    const Op& op = *step.op;
    if (op.code == OpCode::For) {
      const Interval begin = value(op.operands[0]), by = value(op.operands[2]);
      const int64_t index = begin.low + step.round * std::max<int64_t>(1, by.low);
      values_[kernel_.region(op.regions[0]).args[0].id] = {index, index};
    } else if (op.code == OpCode::Barrier) {
      pending_.clear();
    } else if (op.code == OpCode::WaitCopies) {
      while (static_cast<int64_t>(groups_.size()) > op.integer("pending")) {
        for (Touch& touch : groups_.front()) pending_.push_back(std::move(touch));
        groups_.pop_front();
      }
    } else if (op.code == OpCode::CommitCopies) {
      groups_.push_back(std::exchange(open_, {}));
    } else {
      if ((op.code == OpCode::Store || op.code == OpCode::Fill) &&
          kernel_.type(op.operands[1]).space == Space::Fragment &&
          kernel_.type(op.operands[1]).rank() == 0)
        variables_[op.operands[1].id] = value(op.operands[0]);
      if (op.result && kernel_.type(op.result).is_scalar()) values_[op.result.id] = evaluate(op);
      look_at(op);
    }
  }

  // ---- Numbers: exact where they follow from loops and constants, else any
  Interval value(Value v) {
    if (auto constant = constant_int(kernel_, v)) return {*constant, *constant};
    auto found = values_.find(v.id);
    if (found != values_.end()) return found->second;
    const OpId def = kernel_.def(v);
    const bool outside =
        rings_ && def && kernel_.op(def).code != OpCode::Const && info(kernel_.op(def).code).pure;
    return values_[v.id] = outside  ? evaluate(kernel_.op(def))  // of the top level
                           : rings_ ? made_up(v)
                                    : anything();
  }
  Interval anything() {
    const auto number = static_cast<int64_t>(random_() % 1000000);
    return {number, number};
  }
  Interval evaluate(const Op& op) {
    if (op.code == OpCode::Const) return value(op.result);
    if (rings_ && op.code == OpCode::Load) return loaded(op);
    if (rings_)
      if (auto known = computed(op)) return *known;
    if (op.operands.size() != 2) return anything();
    if (op.code != OpCode::Add && op.code != OpCode::Sub && op.code != OpCode::Mul)
      return anything();
    const Interval a = value(op.operands[0]), b = value(op.operands[1]);
    if (op.code == OpCode::Add) return {a.low + b.low, a.high + b.high};
    if (op.code == OpCode::Sub) return {a.low - b.high, a.high - b.low};
    const auto ends = std::minmax({small(a.low) * small(b.low), small(a.low) * small(b.high),
                                   small(a.high) * small(b.low), small(a.high) * small(b.high)});
    return {ends.first, ends.second};
  }
  static int64_t small(int64_t x) { return x % (int64_t{1} << 28); }

  // ---- Accesses
  void add_touches(const Op& op, std::vector<Touch>& touches) {
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const Effect effect = info(op.code).operand(i).effect;
      if (!op.operands[i] || effect == Effect::None) continue;
      const Value base = base_of(kernel_, op.operands[i]);
      const Space space = kernel_.type(base).space;
      if (space == Space::Fragment) continue;
      Touch touch{&op, base, effect != Effect::Read, 0, 0, {}};
      if (space == Space::Shared) {
        std::tie(touch.begin, touch.end) = bytes_of(op.operands[i]);
      } else {
        touch.box = box(op, i);
      }
      touches.push_back(std::move(touch));
    }
  }

  // Of a view without the axes in front, the one place of those.
  std::pair<int64_t, int64_t> bytes_of(Value storage) {
    const Value base = base_of(kernel_, storage);
    auto [begin, end] = bytes_of_tile(base);
    for (const Op* slice; (slice = kernel_.def_as(storage, OpCode::Slice));
         storage = slice->operands[0]) {
      const Type& from = kernel_.type(slice->operands[0]);
      if (kernel_.type(storage).rank() == from.rank()) continue;
      const int64_t each = (end - begin) / from.shape[0];
      begin += value(slice->operands[1]).low * each;
      end = begin + each;
    }
    return {begin, end};
  }
  std::pair<int64_t, int64_t> bytes_of_tile(Value tile) {
    auto [found, is_new] = bytes_.try_emplace(tile.id);
    if (is_new) {
      const Op& alloc = *kernel_.def_as(tile, OpCode::Alloc);
      const int64_t size = static_cast<int64_t>(size_of(kernel_.type(tile).dtype));
      found->second = {alloc.integer("offset"),
                       alloc.integer("offset") + layout_of(alloc)->extent(Resource::Offset) * size};
    }
    return found->second;
  }

  Box box(const Op& op, size_t operand) {
    Value view = op.operands[operand];
    Box box;
    if (op.code == OpCode::Load || op.code == OpCode::Store || op.code == OpCode::Atomic) {
      for (size_t i = operand + 1; i < op.operands.size(); ++i)
        box.push_back(value(op.operands[i]));
    } else {
      for (int64_t extent : kernel_.type(view).shape)
        box.push_back({0, extent == kDynamic ? 1 << 30 : extent - 1});
    }
    for (; kernel_.def_as(view, OpCode::Slice);
         view = kernel_.def_as(view, OpCode::Slice)->operands[0])
      for (size_t axis = 0; axis < box.size(); ++axis) {
        const Interval start = value(kernel_.def_as(view, OpCode::Slice)->operands[axis + 1]);
        box[axis] = {box[axis].low + start.low, box[axis].high + start.high};
      }
    return box;
  }

  void look_at(const Op& op) {
    std::vector<Touch> touches;
    if (op.code == OpCode::Parallel) {
      const Region& body = kernel_.region(op.regions[0]);
      for (size_t axis = 0; axis < body.args.size(); ++axis)
        values_[body.args[axis].id] = {0, op.ints("extents")[axis] - 1};
      for (OpId id : body.ops) {
        const Op& inner = kernel_.op(id);
        if (inner.result) values_[inner.result.id] = evaluate(inner);
        add_touches(inner, touches);
        for (size_t i = touches.size(); i-- > 0 && touches[i].op == &inner;) touches[i].op = &op;
      }
    } else {
      add_touches(op, touches);
    }
    for (const Touch& touch : touches) {
      for (const Touch& earlier : pending_)
        if (race(earlier, touch)) return report("no barrier", earlier, touch);
      for (const Group& group : groups_)
        for (const Touch& earlier : group)
          if (race(earlier, touch)) return report("a copy under way", earlier, touch);
      for (const Touch& earlier : open_)
        if (race(earlier, touch)) return report("a copy in no group", earlier, touch);
    }
    if (op.code == OpCode::Copy && op.word("instruction") == "cp_async") {
      for (Touch& touch : touches) open_.push_back(std::move(touch));
      if (op.word("group") == "own") groups_.push_back(std::exchange(open_, {}));
    } else {
      for (Touch& touch : touches) pending_.push_back(std::move(touch));
    }
  }

  static bool race(const Touch& a, const Touch& b) {
    if (!a.writes && !b.writes) return false;
    if (a.box.empty() != b.box.empty()) return false;
    if (a.box.empty()) return a.begin < b.end && b.begin < a.end;
    if (a.base != b.base) return false;
    // Rounds of one op may be told apart; two ops are taken to meet.
    bool meet = true;
    for (size_t axis = 0; axis < a.box.size(); ++axis)
      meet &= a.box[axis].low <= b.box[axis].high && b.box[axis].low <= a.box[axis].high;
    return meet || a.op != b.op || !a.writes || !b.writes;
  }

  static bool is_ordered(const Op& op) {
    return op.code == OpCode::Copy && op.word("group") == "next";
  }

  void report(const char* what, const Touch& earlier, const Touch& later) {
    auto name = [&](const Touch& touch) {
      return fmt::format("{} {} of {} ({})", touch.writes ? "write by" : "read by",
                         info(touch.op->code).name, str(kernel_.type(touch.base)),
                         str(touch.op->loc));
    };
    race_ = fmt::format("{} between {} and {}", what, name(earlier), name(later));
  }

  const Kernel& kernel_;
  const int most_traces_;
  std::mt19937_64 random_{1};
  std::map<uint32_t, Interval> values_;
  std::map<uint32_t, std::pair<int64_t, int64_t>> bytes_;  // of shared tiles: begin and end
  std::vector<Touch> pending_;                             // since the last barrier
  std::deque<Group> groups_;                               // under way
  Group open_;                                             // in none yet
  bool rings_ = false;
  std::map<uint32_t, Interval> variables_;  // scalar variables
  uint64_t seed_ = 0;
  int steps_ = 0;
  std::string race_;
};

// Each kernel that is this one with a barrier or a wait missing, or a wait that waits for one copy
// less: visit(mutant, what was done).
template <class Visit>
void for_each_mutant(const Kernel& kernel, Visit&& visit) {
  walk_regions(kernel, kernel.body, [&](RegionId region) {
    for (size_t i = 0; i < kernel.region(region).ops.size(); ++i) {
      const OpId id = kernel.region(region).ops[i];
      const OpCode code = kernel.op(id).code;
      if (code != OpCode::Barrier && code != OpCode::WaitCopies) continue;
      Kernel mutant = kernel;
      auto& ops = mutant.region(region).ops;
      ops.erase(ops.begin() + static_cast<ptrdiff_t>(i));
      visit(mutant, fmt::format("without the {} of {}", info(code).name, str(kernel.op(id).loc)));
      if (code == OpCode::Barrier) continue;
      mutant = kernel;
      mutant.op(id).attrs.set("pending", kernel.op(id).integer("pending") + 1);
      visit(mutant, fmt::format("with one more pending at {}", str(kernel.op(id).loc)));
    }
  });
}

}  // namespace kiln::testing
