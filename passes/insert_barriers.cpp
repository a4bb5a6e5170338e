// Follows what may have been touched since the last barrier, on all paths to each op; where an op
// conflicts with that, a barrier is inserted before it. cp_async copies are under way until a wait
// and then need a barrier as well: for each, the least number of later copies on any path to here
// is kept, so that a wait leaves as many under way as it may. What is counted are groups: one copy,
// or those that a commit_copies closes; of the open one the number is −1.
//
// A barrier stands just before the op, or, if what it waits for was touched before a loop around
// the op, before that loop. Loops first get the barriers that their own rounds need, as if nothing
// had been touched before them: often these do for what comes from outside. In the end each barrier
// is tried without, and left out if nothing is missing then.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "ir/builder.h"
#include "ir/walk.h"
#include "passes/memory_use_impl.h"
#include "passes/passes.h"

namespace kiln {
namespace {

// Touched since the last barrier.
struct Touched {
  Touch touch;
  RegionId region;  // of the op that did
  OpId op;          // the op, for writes to tensors only: others are told apart by region
  OpId round_of;    // touched in an earlier round of this loop, the outermost of those
  auto operator<=>(const Touched&) const = default;
};

struct State {
  std::set<Touched> touched;
  std::map<OpId, int64_t> under_way;  // copies, and how many at least have been issued since

  bool operator==(const State&) const = default;
  void merge(const State& other) {
    touched.insert(other.touched.begin(), other.touched.end());
    for (const auto& [copy, later] : other.under_way) {
      auto [it, is_new] = under_way.try_emplace(copy, later);
      it->second = std::min(it->second, later);
    }
  }
};

// What is inserted before an op.
struct Guard {
  std::set<OpId> copies;  // that must have arrived
  int64_t pending = -1;   // of the wait for them; none below 0
  bool commit = false;    // some are in no group yet
  bool barrier = false;
};

class Guards {
 public:
  Guards(const Kernel& kernel, OpId launch)
      : kernel_(kernel), launch_(launch), use_(kernel, kernel.op(launch).regions[0]) {
    survey(launch);
  }

  std::map<OpId, Guard> find() {
    do {
      rounds_alone_ = true;
      do {
        heads_.clear();  // they know less of barriers than there are
        settle();
      } while (added_);
      rounds_alone_ = false;
      settle();
    } while (added_);
    leave_out_superfluous();
    return guards_;
  }

 private:
  // Of more in a launch, none is tried: each costs another look at all of it.
  static constexpr std::ptrdiff_t kMostTried = 64;

  // What the rounds of a loop around others seemed to need alone, a later barrier may do for. Those
  // that run most often are tried first.
  void leave_out_superfluous() {
    if (std::count_if(guards_.begin(), guards_.end(),
                      [](const auto& each) { return each.second.barrier; }) > kMostTried)
      return;
    std::map<size_t, std::vector<OpId>, std::greater<>> barriers;  // by how deep they are
    for (const auto& [id, guard] : guards_) {
      size_t depth = 0;
      for (OpId around = id; around != launch_; ++depth)
        around = around_.at(region_of_.at(around.id).id);
      if (guard.barrier) barriers[depth].push_back(id);
    }
    for (const auto& [depth, ids] : barriers)
      for (OpId id : ids) {
        const std::map<OpId, Guard> before = guards_;
        guards_.at(id).barrier = false;
        heads_.clear();
        settle();
        if (added_) guards_ = before;
      }
  }

  // A place before an op; of two around the same op, the deeper comes later.
  struct Position {
    OpId op;
    size_t depth = 0;
    void deepen(const Position& other) {
      if (!op || other.depth > depth) *this = other;
    }
  };

  void survey(OpId id) {
    for (RegionId region : kernel_.op(id).regions) {
      around_[region.id] = id;
      for (OpId inner : kernel_.region(region).ops) {
        region_of_[inner.id] = region;
        survey(inner);
      }
    }
  }

  bool is_loop(OpId id) const {
    const OpCode code = kernel_.op(id).code;
    return code == OpCode::For || code == OpCode::Selected || code == OpCode::Loop;
  }
  bool inside(RegionId region, OpId op) const {
    for (OpId id = around_.at(region.id);; id = around_.at(region_of_.at(id.id).id)) {
      if (id == op) return true;
      if (id == launch_) return false;
    }
  }

  // Walks through the launch until that shows nothing new, or something was added.
  void settle() {
    added_ = false;
    do {
      changed_ = false;
      State state;
      region(kernel_.op(launch_).regions[0], state);
    } while (changed_ && !added_);
  }

  void region(RegionId region, State& state) {
    for (OpId id : kernel_.region(region).ops) op(id, state);
  }

  void op(OpId id, State& state) {
    if (guards_.contains(id)) pass(guards_.at(id), state);
    const Op& op = kernel_.op(id);
    switch (op.code) {
      case OpCode::If: return branch(op, state);
      case OpCode::ExitIf: return leave(op, state);
      case OpCode::Barrier: return state.touched.clear();
      case OpCode::WaitCopies: return wait(op.integer("pending"), state);
      case OpCode::CommitCopies: return commit(state);
      default: break;
    }
    touch(id, state);
    if (is_loop(id)) loop(id, state);
  }

  void branch(const Op& op, State& state) {
    State otherwise = state;
    region(op.regions[0], state);
    if (op.regions.size() > 1) region(op.regions[1], otherwise);
    state.merge(otherwise);
  }

  void leave(const Op& op, const State& state) {
    State leaving = state;
    region(op.regions[0], leaving);
    exits_.merge(leaving);
  }

  // Any number of rounds, none included; of a `loop` one at least, which an exit ends.
  void loop(OpId id, State& state) {
    State round = heads_[id];
    if (!rounds_alone_) round.merge(state);
    State outer = std::exchange(exits_, {});
    region(kernel_.op(id).regions[0], round);
    State exits = std::exchange(exits_, std::move(outer));
    State next;
    next.under_way = round.under_way;
    for (Touched touched : round.touched) {
      if (touched.round_of == id) touched.round_of = {};
      if (!touched.round_of && inside(touched.region, id)) touched.round_of = id;
      next.touched.insert(touched);
    }
    const bool has_exits = kernel_.op(id).code == OpCode::Loop;
    if (has_exits) state = {};
    state.merge(left(id, has_exits ? exits : round));
    State& head = heads_[id];
    next.merge(head);
    if (next != head) changed_ = true;
    head = std::move(next);
  }

  // As it is after the loop: its rounds are over.
  static State left(OpId loop, const State& state) {
    State after;
    after.under_way = state.under_way;
    for (Touched touched : state.touched) {
      if (touched.round_of == loop) touched.round_of = {};
      after.touched.insert(touched);
    }
    return after;
  }

  void pass(Guard& guard, State& state) {
    guard.pending = -1;
    guard.commit = false;
    for (OpId copy : guard.copies) {
      auto found = state.under_way.find(copy);
      if (found == state.under_way.end()) continue;
      guard.commit |= found->second < 0;
      const int64_t later = std::max<int64_t>(0, found->second);
      if (guard.pending < 0 || later < guard.pending) guard.pending = later;
    }
    if (guard.commit) commit(state);
    if (guard.pending >= 0) wait(guard.pending, state);
    if (guard.barrier) state.touched.clear();
  }

  // What has arrived is there for the thread that copied it, for others after a barrier.
  void wait(int64_t pending, State& state) {
    std::erase_if(state.under_way, [&](const auto& entry) {
      if (entry.second < pending) return false;
      add_touched(entry.first, state);
      return true;
    });
  }

  static void commit(State& state) {
    for (auto& [copy, later] : state.under_way) ++later;
  }

  void add_touched(OpId id, State& state) {
    for (const Touch& touch : use_.touches(id)) {
      if (touch.ordered) continue;  // what comes after it has been ordered
      const bool tensor = kernel_.type(touch.base).space == Space::Global;
      state.touched.insert({touch, region_of_.at(id.id), tensor && touch.writes ? id : OpId{}, {}});
    }
  }

  void touch(OpId id, State& state) {
    for (const Touch& touch : use_.touches(id)) guard_against(id, touch, state);
    const Op& op = kernel_.op(id);
    if (op.code == OpCode::Copy && op.word("instruction") == "cp_async") {
      const bool own = op.word("group") == "own";
      if (own) commit(state);
      state.under_way[id] = own ? 0 : -1;
      return;
    }
    add_touched(id, state);
  }

  // First the wait for copies under way, then, for what has arrived and all else, the barrier.
  void guard_against(OpId id, const Touch& touch, State& state) {
    Position position;
    std::set<OpId> copies;
    for (const auto& [copy, count] : state.under_way)
      for (const Touch& earlier : use_.touches(copy))
        if (!earlier.ordered && touch.conflicts_with(earlier)) {
          position.deepen(between(region_of_.at(copy.id), {}, id));
          copies.insert(copy);
        }
    if (position.op) {
      guards_[position.op].copies.insert(copies.begin(), copies.end());
      added(position, id, state);
    }
    position = {};
    for (const Touched& earlier : state.touched)
      if (touch.conflicts_with(earlier.touch) && !writes_apart(id, touch, earlier))
        position.deepen(between(earlier.region, earlier.round_of, id));
    if (position.op) {
      guards_[position.op].barrier = true;
      added(position, id, state);
    }
  }

  void added(const Position& position, OpId id, State& state) {
    added_ = true;
    if (position.op == id) {
      pass(guards_.at(id), state);
    } else {
      state = {};  // what is right here shows the next time round
    }
  }

  bool writes_apart(OpId id, const Touch& touch, const Touched& earlier) {
    return earlier.op == id && touch.writes && earlier.round_of &&
           use_.writes_apart(id, touch.base, earlier.round_of);
  }

  // The outermost loop around `id` that has not been entered when what is in `region` runs, in an
  // earlier round of `round_of` if there is one; `id` itself if there is no such loop.
  Position between(RegionId region, OpId round_of, OpId id) const {
    std::vector<OpId> chain = {id};
    while (chain.back() != launch_) chain.push_back(around_.at(region_of_.at(chain.back().id).id));
    size_t depth = 0;
    bool entered = true;
    for (auto op = chain.rbegin(); op != chain.rend(); ++op, ++depth) {
      if (!inside(region, *op)) entered = false;
      if (!entered && is_loop(*op)) return {*op, depth};
      if (*op == round_of) entered = false;
    }
    return {id, depth};
  }

  const Kernel& kernel_;
  const OpId launch_;
  MemoryUse use_;
  std::unordered_map<uint32_t, OpId> around_;         // the op that a region belongs to
  std::unordered_map<uint32_t, RegionId> region_of_;  // by op
  std::map<OpId, Guard> guards_;
  std::map<OpId, State> heads_;  // of loops: at the start of a round that is not the first
  State exits_;                  // of the innermost `loop`: where it is left
  bool rounds_alone_ = false;    // loops are looked at as if nothing had happened before them
  bool changed_ = false, added_ = false;  // heads; guards
};

void insert(Kernel& kernel, RegionId region, const std::map<OpId, Guard>& guards) {
  std::vector<OpId> ops;
  ops.swap(kernel.region(region).ops);
  Builder build(kernel, region);
  for (OpId id : ops) {
    if (auto found = guards.find(id); found != guards.end()) {
      build.loc = kernel.op(id).loc;
      const int64_t pending = found->second.pending;
      Attrs attrs;
      attrs.set("pending", pending);
      if (found->second.commit) build.emit(OpCode::CommitCopies, {});
      if (pending >= 0) build.emit(OpCode::WaitCopies, {}, std::move(attrs));
      if (found->second.barrier) build.emit(OpCode::Barrier, {});
    }
    kernel.region(region).ops.push_back(id);
    for (RegionId inner : std::vector<RegionId>(kernel.op(id).regions))
      insert(kernel, inner, guards);
  }
}

}  // namespace

void insert_barriers(Kernel& kernel) {
  for (OpId id : std::vector<OpId>(kernel.region(kernel.body).ops))
    if (kernel.op(id).code == OpCode::Launch)
      insert(kernel, kernel.op(id).regions[0], Guards(kernel, id).find());
}

}  // namespace kiln
