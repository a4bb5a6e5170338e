// Channels of one agent, the block: a ring is one shared tile with the slots on its first axis, and
// a slot is a slice of it. Whose turn it is is counted in scalar variables; channels that are
// pushed and popped together have theirs together.
//
// A pop waits for the thread's own copies, if any are asynchronous, then for all threads: what they
// stored into the slot is there too. That barrier also says that what was released before it is
// free; a push_begin has one of its own where it comes after a release with no such pop between,
// before the outermost op that does.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "ir/layout/reshape.h"
#include "ir/layout/tile_layout.h"
#include "passes/loops.h"
#include "passes/memory_plan_impl.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

namespace kiln {
namespace {

// What takes one slot after the other of a channel.
enum class End { Push, Pop, Release };

// One op, or push_begin with its push_end: where it stands, in program order.
struct Event {
  int64_t first = 0, last = 0;
  RegionId region;
  int64_t exits = 0;  // exit_ifs before it in its region
};

struct Ring {
  const Op* channel = nullptr;
  Value tile;
  std::map<End, std::vector<Event>> events;
  std::map<End, size_t> counters;  // which of the launch's
  bool stores = false;             // are slots filled by copies that are not asynchronous?
};

struct Counter {
  std::vector<const Ring*> rings;
  Value variable;
  const Op* last = nullptr;  // channel of the ring whose op moves it on
};

// The channels of a launch, and what their ops need.
class Rings {
 public:
  Rings(const Kernel& kernel, OpId launch) : kernel_(kernel), launch_(launch) {
    walk(kernel, kernel.op(launch).regions[0], [&](OpId id) {
      const Op& op = kernel.op(id);
      if (op.code == OpCode::Held && op.word("which") == "oldest") oldest_.insert(op.operands[0]);
    });
    survey(launch);
    for (auto& [id, ring] : rings_)
      for (auto& [end, events] : ring.events) ring.counters[end] = counter_for(ring, end);
    for (OpId pop : pops_)
      if (is_covered(pop)) covered_.insert(pop);
    find_barriers();
  }

  bool empty() const { return rings_.empty(); }
  Ring& ring(Value channel) { return rings_.at(channel.id); }
  std::vector<Counter>& counters() { return counters_; }
  // Does it fill a slot that is being pushed?
  bool fills(OpId op) const { return fills_.contains(op); }
  bool needs_barrier(OpId op) const { return barriers_.contains(op); }
  // Has another pop of the round waited for what this one needs?
  bool has_waited(OpId pop) const { return covered_.contains(pop); }
  // Are there asynchronous copies?
  bool waits() const { return waits_; }

 private:
  void survey(OpId around) {
    for (RegionId region : kernel_.op(around).regions) {
      around_[region.id] = around;
      int64_t exits = 0;
      for (OpId id : kernel_.region(region).ops) {
        region_of_[id] = region;
        const Op& op = kernel_.op(id);
        ++position_;
        exits += op.code == OpCode::ExitIf;
        note(id, {position_, position_, region, exits});
        survey(id);
      }
    }
  }

  void note(OpId id, const Event& event) {
    const Op& op = kernel_.op(id);
    switch (op.code) {
      case OpCode::Channel: rings_[op.result.id].channel = &op; return;
      case OpCode::PushBegin:
        pushes_.push_back(id);
        ring_of(op).events[End::Push].push_back(event);
        return;
      case OpCode::PushEnd: ring_of(op).events[End::Push].back().last = event.last; return;
      case OpCode::Pop:
        pops_.push_back(id);
        ring_of(op).events[End::Pop].push_back(event);
        return;
      case OpCode::Release:
        if (oldest_.contains(op.operands[0])) ring_of(op).events[End::Release].push_back(event);
        return;
      case OpCode::Copy:
        if (const Op* slot = kernel_.def_as(base_of(kernel_, op.operands[1]), OpCode::PushBegin)) {
          fills_.insert(id);
          ring_of(*slot).stores = true;
        }
        return;
      case OpCode::CopyAsync: waits_ = true; return;
      default: return;
    }
  }
  Ring& ring_of(const Op& op) { return rings_.at(op.operands[0].id); }

  size_t counter_for(const Ring& ring, End end) {
    for (size_t i = 0; i < counters_.size(); ++i) {
      Counter& counter = counters_[i];
      const auto agrees = [&](const Ring* other) { return move_together(*other, ring, end); };
      if (ends_[i] != end || !std::all_of(counter.rings.begin(), counter.rings.end(), agrees))
        continue;
      counter.rings.push_back(&ring);
      if (ring.events.at(end).front().last > last_[i]) {
        last_[i] = ring.events.at(end).front().last;
        counter.last = ring.channel;
      }
      return i;
    }
    counters_.push_back({{&ring}, {}, ring.channel});
    ends_.push_back(end);
    last_.push_back(ring.events.at(end).front().last);
    return counters_.size() - 1;
  }

  // Do both take their slots in the same places, always in the same order, one step at a time, from
  // rings of the same size made in one place?
  bool move_together(const Ring& a, const Ring& b, End end) const {
    if (a.channel->integer("slots") != b.channel->integer("slots")) return false;
    if (region_of_.at(kernel_.def(a.channel->result)) !=
        region_of_.at(kernel_.def(b.channel->result)))
      return false;
    const auto of_a = a.events.find(end), of_b = b.events.find(end);
    if (of_a == a.events.end() || of_b == b.events.end()) return false;
    const std::vector<Event>&x = of_a->second, &y = of_b->second;
    if (x.size() != y.size()) return false;
    const bool a_first = x[0].last < y[0].first;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i].region != y[i].region || x[i].exits != y[i].exits) return false;
      if (a_first ? x[i].last > y[i].first : y[i].last > x[i].first) return false;
      if (i > 0 && std::min(x[i].first, y[i].first) < std::max(x[i - 1].last, y[i - 1].last))
        return false;
    }
    return true;
  }

  // Those that a later one makes superfluous go again.
  void find_barriers() {
    for (OpId push : pushes_)
      if (const auto place = lacks_barrier(push)) barriers_.insert(*place);
    for (OpId barrier : std::set<OpId>(barriers_)) {
      barriers_.erase(barrier);
      if (std::any_of(pushes_.begin(), pushes_.end(), [&](OpId id) { return lacks_barrier(id); }))
        barriers_.insert(barrier);
    }
  }
  // Goes back from a push to where the slot it takes may have been released: before which op is a
  // barrier lacking? None if there is one on all ways.
  std::optional<OpId> lacks_barrier(OpId push) const {
    const Value channel = kernel_.op(push).operands[0];
    for (OpId id = push; id != launch_; id = around_.at(region_of_.at(id).id)) {
      if (barriers_.contains(id)) return std::nullopt;
      const RegionId region = region_of_.at(id);
      const std::vector<OpId>& ops = kernel_.region(region).ops;
      const auto before = std::find(ops.begin(), ops.end(), id) - ops.begin();
      const Last last = last_of(std::span(ops).first(static_cast<size_t>(before)), channel);
      if (last == Last::Release) return id;
      if (last == Last::Barrier) return std::nullopt;
      const OpId around = around_.at(region.id);
      if (around != launch_ && is_loop(kernel_.op(around)) &&
          last_of(ops, channel) == Last::Release)
        return id;
    }
    return std::nullopt;
  }
  // What is last of releases of a channel, if they may be, and barriers, if they surely are.
  enum class Last { Neither, Barrier, Release };
  Last last_of(std::span<const OpId> ops, Value channel) const {
    for (size_t i = ops.size(); i-- > 0;) {
      const Op& op = kernel_.op(ops[i]);
      const bool waits = op.code == OpCode::Pop && !has_waited(ops[i]);
      if (waits || op.code == OpCode::Barrier) return Last::Barrier;
      const bool has_exits = op.code == OpCode::Loop;  // from before a barrier, too
      bool released = (op.regions.empty() || has_exits) && does(op, OpCode::Release, channel);
      for (RegionId region : op.regions)
        released |= last_of(kernel_.region(region).ops, channel) == Last::Release;
      if (released) return Last::Release;
      if (barriers_.contains(ops[i])) return Last::Barrier;
    }
    return Last::Neither;
  }
  // A pop before it, in this round, left `pending` groups under way; those closed since, exactly
  // known, are not among those that this one waits for.
  bool is_covered(OpId pop) const {
    const Value channel = kernel_.op(pop).operands[0];
    const bool stores = rings_.at(channel.id).stores;  // these are in no group
    int64_t most = kernel_.op(pop).integer("pending");
    for (OpId id = pop; id != launch_; id = around_.at(region_of_.at(id).id)) {
      if (id != pop && is_loop(kernel_.op(id))) return false;
      const std::vector<OpId>& ops = kernel_.region(region_of_.at(id)).ops;
      for (auto before = std::find(ops.begin(), ops.end(), id); before != ops.begin();) {
        const Op& op = kernel_.op(*--before);
        if (op.code == OpCode::Pop && op.integer("pending") <= most) return true;
        if (stores && does(op, OpCode::PushEnd, channel)) return false;
        if (op.code == OpCode::CommitCopies)
          --most;
        else if (closes_groups(op))
          return false;
      }
    }
    return false;
  }
  bool closes_groups(const Op& op) const {
    const auto closes = [](const Op& each) {
      return each.code == OpCode::CommitCopies ||
             (each.code == OpCode::Copy && each.word("instruction") == "cp_async" &&
              each.word("group") == "own");
    };
    return any_op(kernel_, op, closes);
  }
  // Does the op, or one in its regions, do this to the channel?
  bool does(const Op& op, OpCode code, Value channel) const {
    const auto is_one = [&](const Op& each) {
      return each.code == code && each.operands[0] == channel;
    };
    return any_op(kernel_, op, is_one);
  }

  const Kernel& kernel_;
  const OpId launch_;
  std::map<uint32_t, Ring> rings_;  // by the channel's value
  std::vector<Counter> counters_;
  std::vector<End> ends_;      // of the counters
  std::vector<int64_t> last_;  // of the counters: where the first event of `last` ends
  std::vector<OpId> pushes_, pops_;
  std::set<Value> oldest_;  // channels of which the slot held longest is asked for
  std::set<OpId> barriers_, covered_, fills_;
  bool waits_ = false;
  std::map<OpId, RegionId> region_of_;
  std::map<uint32_t, OpId> around_;  // by region
  int64_t position_ = 0;
};

class Lowering {
 public:
  Lowering(Kernel& kernel, Rings& rings, ValueMap& names)
      : kernel_(kernel), rings_(rings), names_(names) {}

  bool operator()(Builder& build, OpId id) {
    if (rings_.needs_barrier(id)) build.emit(OpCode::Barrier, {});
    if (rings_.fills(id)) kernel_.op(id).attrs.set("group", std::string("next"));
    const Op op = kernel_.op(id);
    switch (op.code) {
      case OpCode::Channel: make_ring(build, op); return true;
      case OpCode::PushBegin: take(build, op, End::Push, 0); return true;
      case OpCode::PushEnd: advance(build, op, End::Push); return true;
      case OpCode::Pop: pop(build, id, op); return true;
      case OpCode::Held: held(build, op); return true;
      case OpCode::Release:
        if (rings_.ring(op.operands[0]).counters.contains(End::Release))
          advance(build, op, End::Release);
        return true;
      case OpCode::CopyAsync: copy(build, op); return true;
      default: return false;
    }
  }

 private:
  void make_ring(Builder& build, const Op& op) {
    Ring& ring = rings_.ring(op.result);
    const Type type = kernel_.type(op.result);
    Shape shape = {op.integer("slots")};
    shape.insert(shape.end(), type.shape.begin(), type.shape.end());
    ring.tile = build.alloc(Space::Shared, type.dtype, shape);
    if (auto layout = layout_of(op))
      set_layout(kernel_.op(kernel_.def(ring.tile)),
                 stacked(*layout, op.integer("slots"), chunk_of(type.dtype)));
    for (const auto& [end, which] : ring.counters) {
      Counter& counter = rings_.counters()[which];
      if (counter.variable) continue;
      counter.variable = build.alloc(Space::Fragment, I32, {});
      build.store(build.constant(I32, 0), counter.variable);
    }
  }

  // The slot `back` places before the counter of `end` becomes the op's result.
  void take(Builder& build, const Op& op, End end, int64_t back) {
    Ring& ring = rings_.ring(op.operands[0]);
    Value place = build.load(variable(ring, end));
    if (back > 0) {
      Value zero = build.constant(I32, 0), at_end = build.compare("eq", place, zero);
      Value last = build.constant(I32, ring.channel->integer("slots") - back);
      place =
          build.select(at_end, last, build.binary(OpCode::Sub, place, build.constant(I32, back)));
    }
    const Shape shape = kernel_.type(op.result).shape;
    std::vector<Value> index = {place};
    for (size_t axis = 0; axis < shape.size(); ++axis) index.push_back(build.constant(I32, 0));
    names_[op.result.id] = build.slice(ring.tile, std::move(index), shape);
  }

  Value variable(const Ring& ring, End end) {
    return rings_.counters()[ring.counters.at(end)].variable;
  }

  void advance(Builder& build, const Op& op, End end) {
    const Ring& ring = rings_.ring(op.operands[0]);
    const Counter& counter = rings_.counters()[ring.counters.at(end)];
    if (counter.last != ring.channel) return;
    const int64_t slots = ring.channel->integer("slots");
    if (slots == 1) return;
    Value place = build.load(counter.variable);
    Value next = build.binary(OpCode::Add, place, build.constant(I32, 1));
    Value wraps = build.compare("eq", next, build.constant(I32, slots));
    build.store(build.select(wraps, build.constant(I32, 0), next), counter.variable);
  }

  void pop(Builder& build, OpId id, const Op& op) {
    if (!rings_.has_waited(id)) {
      Attrs attrs;
      if (op.integer("pending") > 0) attrs.set("pending", op.integer("pending"));
      if (rings_.waits()) build.emit(OpCode::WaitCopies, {}, std::move(attrs));
      build.emit(OpCode::Barrier, {});
    }
    take(build, op, End::Pop, 0);
    advance(build, op, End::Pop);
  }

  void held(Builder& build, const Op& op) {
    if (op.word("which") == "oldest") return take(build, op, End::Release, 0);
    take(build, op, End::Pop, 1);
  }

  void copy(Builder& build, const Op& op) {
    Attrs attrs;
    attrs.set("instruction", std::string("cp_async"));
    attrs.set("group", std::string("next"));
    if (!op.word("reason").empty()) attrs.set("reason", op.word("reason"));
    build.emit(OpCode::Copy, op.operands, std::move(attrs));
  }

  Kernel& kernel_;
  Rings& rings_;
  ValueMap& names_;
};

bool has_roles(const Kernel& kernel, OpId launch) {
  const std::vector<OpId>& ops = kernel.region(kernel.op(launch).regions[0]).ops;
  return !ops.empty() && kernel.op(ops.back()).code == OpCode::Roles;
}

}  // namespace

void lower_channels(Kernel& kernel) {
  ValueMap names;
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops)) {
    if (kernel.op(id).code != OpCode::Launch || has_roles(kernel, id)) continue;
    Rings rings(kernel, id);
    if (rings.empty()) continue;
    Lowering lowering(kernel, rings, names);
    rewrite(kernel, kernel.op(id).regions[0], names, lowering);
  }
}

}  // namespace kiln
