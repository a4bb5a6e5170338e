#include "ir/canon.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/error.h"
#include "ir/print.h"
#include "ir/siphash.h"
#include "ir/walk.h"

namespace kiln {
namespace {

// Ops of a region are of two sorts. Anchors (stores, copies, allocs, loops, …) keep their order.
// The others, pure ops and loads, go where an anchor first needs them, depth first by operands; an
// op that nothing needs is not placed. A load must not pass an anchor that writes its base: what
// is still unplaced when such an anchor comes goes right before it, in the order in which it would
// be needed. In a lowered kernel (with a target) loads are anchors too: where a load of a list or
// of a message stands has been chosen.
bool is_load(const OpInfo& row) {
  bool reads = false, writes = false;
  for (const OperandInfo& operand : row.operands) {
    reads |= operand.effect == Effect::Read;
    writes |= operand.effect == Effect::Write || operand.effect == Effect::Update;
  }
  return row.has_result && row.max_regions == 0 && reads && !writes;
}

class Scheduler {
 public:
  explicit Scheduler(const Kernel& kernel)
      : kernel_(kernel), home_(kernel.value_count()), order_{} {
    find_homes(kernel.body);
    schedule(kernel.body);
  }

  const std::vector<OpId>& order(RegionId region) const { return order_.at(region.id); }

 private:
  // What a slot holds, and which slot is held, also changes without a write that names the slot.
  bool is_movable_load(const Op& op) const {
    if (!kernel_.target.empty() || !is_load(info(op.code))) return false;
    const Value base = base_of(kernel_, op.operands[0]);
    return kernel_.type(base).kind != Kind::Channel && !channel_of(kernel_, base);
  }
  bool is_anchor(const Op& op) const { return !info(op.code).pure && !is_movable_load(op); }

  void find_homes(RegionId region) {
    for (Value arg : kernel_.region(region).args) home_[arg.id] = region;
    for (OpId id : kernel_.region(region).ops) {
      const Op& op = kernel_.op(id);
      if (op.result) home_[op.result.id] = region;
      for (RegionId inner : op.regions) find_homes(inner);
    }
  }

  // Orders the region, inner ones first. Returns the values from outside that it uses, in order of
  // first use.
  std::vector<Value> schedule(RegionId region) {
    const std::vector<OpId>& ops = kernel_.region(region).ops;
    std::unordered_map<uint32_t, std::vector<Value>> needs;  // by anchor
    for (OpId id : ops) {
      const Op& op = kernel_.op(id);
      if (!is_anchor(op)) continue;
      std::vector<Value>& needed = needs[id.id] = op.operands;
      for (RegionId inner : op.regions)
        for (Value value : schedule(inner)) needed.push_back(value);
    }

    std::vector<OpId> by_need;
    Placed placed;
    for (OpId id : ops)
      if (needs.contains(id.id)) place(needs[id.id], region, placed, by_need);
    order_[region.id] = with_loads_in_place(region, needs, by_need);
    return used_from_outside(region, needs);
  }

  using Placed = std::unordered_map<uint32_t, bool>;

  // Appends the pure ops and loads of `region` that `values` need, operands before users.
  void place(const std::vector<Value>& values, RegionId region, Placed& placed,
             std::vector<OpId>& order) const {
    struct Frame {
      OpId op;
      size_t next;
    };
    std::vector<Frame> stack;  // not recursion: chains of operands are as long as the program
    auto enter = [&](Value value) {
      OpId id = value && home_[value.id] == region ? kernel_.def(value) : OpId{};
      if (id && !is_anchor(kernel_.op(id)) && placed.try_emplace(id.id).second)
        stack.push_back({id, 0});
    };
    for (Value value : values) {
      enter(value);
      while (!stack.empty()) {
        Frame& top = stack.back();
        const Op& op = kernel_.op(top.op);
        if (top.next < op.operands.size()) {
          enter(op.operands[top.next++]);
        } else {
          order.push_back(top.op);
          stack.pop_back();
        }
      }
    }
  }

  struct PendingLoad {
    OpId op;
    size_t rank;  // in the order of need
  };
  // Loads of one base in their original order; those before `next` have met a write of the base.
  struct LoadsOfBase {
    std::vector<std::pair<size_t, PendingLoad>> loads;  // with their original position
    size_t next = 0;
  };

  std::vector<OpId> with_loads_in_place(
      RegionId region, const std::unordered_map<uint32_t, std::vector<Value>>& needs,
      const std::vector<OpId>& by_need) const {
    const std::vector<OpId>& ops = kernel_.region(region).ops;
    std::unordered_map<uint32_t, size_t> rank;
    for (size_t i = 0; i < by_need.size(); ++i) rank[by_need[i].id] = i;
    std::unordered_map<uint32_t, LoadsOfBase> loads;
    for (size_t position = 0; position < ops.size(); ++position) {
      const Op& op = kernel_.op(ops[position]);
      if (!is_movable_load(op) || !rank.contains(ops[position].id)) continue;
      for (const Access& access : accesses(kernel_, op))
        loads[access.base.id].loads.push_back({position, {ops[position], rank[ops[position].id]}});
    }

    std::vector<OpId> order;
    Placed placed;
    for (size_t position = 0; position < ops.size(); ++position) {
      auto needed = needs.find(ops[position].id);
      if (needed == needs.end()) continue;
      place(needed->second, region, placed, order);
      std::vector<PendingLoad> overtaken;
      for (const Access& access : accesses_deep(kernel_, kernel_.op(ops[position]))) {
        auto found = loads.find(access.base.id);
        if (access.effect == Effect::Read || found == loads.end()) continue;
        LoadsOfBase& of_base = found->second;
        for (; of_base.next < of_base.loads.size(); ++of_base.next) {
          const auto& [at, load] = of_base.loads[of_base.next];
          if (at > position) break;
          overtaken.push_back(load);
        }
      }
      std::sort(overtaken.begin(), overtaken.end(),
                [](const auto& a, const auto& b) { return a.rank < b.rank; });
      for (const PendingLoad& load : overtaken)
        place({kernel_.op(load.op).result}, region, placed, order);
      order.push_back(ops[position]);
    }
    return order;
  }

  std::vector<Value> used_from_outside(
      RegionId region, const std::unordered_map<uint32_t, std::vector<Value>>& needs) const {
    std::vector<Value> used;
    Placed seen;
    for (OpId id : order_.at(region.id)) {
      auto needed = needs.find(id.id);
      for (Value value : needed == needs.end() ? kernel_.op(id).operands : needed->second)
        if (value && home_[value.id] != region && seen.try_emplace(value.id).second)
          used.push_back(value);
    }
    return used;
  }

  const Kernel& kernel_;
  std::vector<RegionId> home_;                             // by value: the region that defines it
  std::unordered_map<uint32_t, std::vector<OpId>> order_;  // by region
};

// Copies a region in the scheduled order.
void rebuild(const Kernel& from, const Scheduler& scheduler, RegionId source, Kernel& to,
             RegionId target, ValueMap& map) {
  for (Value arg : from.region(source).args) map[arg.id] = to.add_argument(target, from.type(arg));
  for (OpId id : scheduler.order(source)) {
    const Op& op = from.op(id);
    std::vector<Value> operands;
    for (Value operand : op.operands) {
      if (operand && !map.contains(operand.id))
        throw InternalError(
            op.loc, fmt::format("an operand of {} is not defined above it", info(op.code).name));
      operands.push_back(mapped(map, operand));
    }
    OpId copy = to.new_op(op.code, op.loc, std::move(operands), op.attrs);
    to.region(target).ops.push_back(copy);
    if (op.result) map[op.result.id] = to.set_result(copy, from.type(op.result));
    for (RegionId region : op.regions) {
      RegionId inner = to.new_region();
      to.op(copy).regions.push_back(inner);
      rebuild(from, scheduler, region, to, inner, map);
    }
  }
}

}  // namespace

Kernel canonical(const Kernel& kernel) {
  Scheduler scheduler(kernel);
  Kernel result(kernel.name);
  result.fast_math = kernel.fast_math;
  result.target = kernel.target;
  result.without = kernel.without;
  result.note = kernel.note;
  ValueMap map;
  rebuild(kernel, scheduler, kernel.body, result, result.body, map);
  return result;
}

std::string hash_text(std::string_view text) {
  const Hash128 hash = siphash128(text, {0, 0});
  return fmt::format("{:016x}{:016x}", hash[0], hash[1]);
}

std::string hash(const Kernel& kernel) {
  return hash_text(print(canonical(kernel)));
}

}  // namespace kiln
