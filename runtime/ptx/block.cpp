// A block: its warps take turns; barriers; what can end it.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/ptx/lanes.h"
#include "runtime/ptx/warp.h"

namespace kiln::ptx {

Block::Block(const Grid& grid, std::vector<InstructionProfile>& profile, GridShadow* between)
    : grid(grid), profile(profile), shared(grid.shared_bytes), between(between) {
  for (uint32_t i = 0; i < (grid.threads() + kLanes - 1) / kLanes; ++i)
    warps_.push_back(std::make_unique<Warp>(*this, i));
}

void Block::run(Dim3 at) {
  index = at;
  // Garbage, as a GPU's, but the same each time.
  std::fill(shared.begin(), shared.end(), std::byte{0xcd});
  bool shadows = grid.options.check_races || grid.options.check_uninitialized;
  if (shadows) shadow.reset(shared.size());
  global_shadow.reset();
  clocks.reset(static_cast<uint32_t>(warps_.size()));
  mbarriers.reset();
  bulk.reset();
  free_registers = 0;
  cluster_ = Cluster{};
  events_ = last_events_ = fruitless_ = 0;
  random_ = (grid.options.seed * 0x9e3779b97f4a7c15 ^ uint64_t{at.z} << 40 ^ uint64_t{at.y} << 20 ^
             at.x) |
            1;
  for (Barrier& barrier : barriers_) barrier = Barrier{};
  for (auto& warp : warps_) warp->reset();
  clock.reset();
  if (grid.options.timeline == at)
    clock.emplace(grid.entry, at, static_cast<uint32_t>(warps_.size()));

  for (;;) {
    const bool any = take_turns();
    bool all_done = true;
    uint64_t instructions = 0;
    for (auto& warp : warps_) {
      all_done &= warp->done();
      instructions += warp->turns;
    }
    if (all_done) return finish();
    if (!any && !go_on()) deadlock();
    if (instructions > grid.options.max_instructions) {
      Finding finding{
          FindingKind::InstructionLimit,
          fmt::format("{} instructions of a block and no end:{}", instructions, positions()),
          "look for a loop that does not end, or raise the limit"};
      finding.block = index;
      for (auto& warp : warps_)
        if (!warp->done()) locate(grid, warp->position_, finding);
      throw Fault{finding};
    }
  }
}

// With a clock, one instruction of the warp that comes first.
bool Block::take_turns() {
  bool any = false;
  if (!clock) {
    for (auto& warp : warps_)
      if (!warp->done()) any |= warp->run();
    return any;
  }
  std::vector<Warp*> order;
  for (auto& warp : warps_)
    if (!warp->done()) order.push_back(warp.get());
  std::stable_sort(order.begin(), order.end(), [&](const Warp* a, const Warp* b) {
    return clock->next(a->index) < clock->next(b->index);
  });
  return std::any_of(order.begin(), order.end(), [](Warp* warp) { return warp->run(); });
}

void Block::arrive(Warp& warp, int id, uint32_t lanes, uint32_t expected, bool waits,
                   uint32_t votes) {
  Barrier& barrier = barriers_[id];
  if (barrier.arrived > 0 && barrier.expected != expected)
    warp.fault(FindingKind::Deadlock,
               fmt::format("barrier {} is awaited by {} threads here and by {} {}", id, expected,
                           barrier.expected, describe(grid, barrier.position)),
               "use one number of threads for all arrivals at a barrier");
  barrier.expected = expected;
  barrier.position = warp.position();
  note_event();
  // A barrier counts whole warps; the last one may have fewer threads.
  bool whole = (lanes | ~warp.exists) == kAllLanes && expected != 0;
  barrier.arrived += whole ? kLanes : static_cast<uint32_t>(std::popcount(lanes));
  barrier.voters += static_cast<uint32_t>(std::popcount(lanes));
  barrier.votes += static_cast<uint32_t>(std::popcount(votes));
  clocks.release(warp.lanes(lanes), barrier.known);
  if (clock) barrier.due = std::max(barrier.due, clock->arrival(warp.index));
  if (waits) {
    Split& split = warp.splits_[warp.current_];
    split.state = SplitState::AtBarrier;
    split.barrier = static_cast<uint8_t>(id);
    if (split.lanes == warp.live()) clocks.lanes_meet(warp.index);
  }
  if (expected != 0 && barrier.arrived > expected)
    warp.fault(FindingKind::Deadlock,
               fmt::format("{} threads arrive at barrier {}, which expects {}", barrier.arrived, id,
                           expected),
               "count the threads of all warps that arrive");
  if (expected != 0 ? barrier.arrived == expected : true) complete_if_arrived(id);
}

void Block::complete_if_arrived(int id) {
  Barrier& barrier = barriers_[id];
  if (barrier.arrived == 0) return;
  uint32_t needed = barrier.expected;
  if (needed == 0)
    for (auto& warp : warps_) needed += static_cast<uint32_t>(std::popcount(warp->live()));
  if (barrier.arrived < needed) return;
  for (auto& warp : warps_) {
    uint32_t released = 0;
    for (Split& split : warp->splits_) {
      if (split.state != SplitState::AtBarrier || split.barrier != id) continue;
      split.state = SplitState::Ready;
      released |= split.lanes;
      finish_reduction(*warp, split, barrier);
    }
    if (released == 0) continue;
    clocks.acquire(warp->lanes(released), barrier.known);
    warp->wait_until(barrier.due, Interval::Kind::WaitBarrier);
  }
  barrier = Barrier{};
}

bool Block::is_awaited(uint64_t mbarrier) const {
  for (auto& warp : warps_)
    for (const Split& split : warp->splits_)
      if (split.state == SplitState::AtMbarrier && split.mbarrier == mbarrier) return true;
  return false;
}

void Block::wake(uint64_t mbarrier) {
  for (auto& warp : warps_)
    for (Split& split : warp->splits_)
      if (split.state == SplitState::AtMbarrier && split.mbarrier == mbarrier)
        split.state = SplitState::Ready;
}

void Block::wake(SplitState what) {
  for (auto& warp : warps_)
    for (Split& split : warp->splits_)
      if (split.state == what) split.state = SplitState::Ready;
}

void Block::arrive_cluster(Warp& warp, uint32_t lanes) {
  clocks.release(warp.lanes(lanes), cluster_.known);
  for_each_lane(lanes, [&](int lane) {
    if (warp.cluster_phases[lane] != cluster_.phases)
      warp.fault(FindingKind::Deadlock,
                 fmt::format("{} arrives twice at the cluster's barrier", warp.thread_name(lane)),
                 "barrier.cluster.wait after each barrier.cluster.arrive");
    warp.cluster_phases[lane] = cluster_.phases + 1;
  });
  note_event();
  complete_cluster_if_arrived();
}

void Block::complete_cluster_if_arrived() {
  bool any = false, all = true;  // that live have arrived
  for (auto& warp : warps_)
    for_each_lane(warp->live(), [&](int lane) {
      const bool here = warp->cluster_phases[lane] > cluster_.phases;
      any |= here;
      all &= here;
    });
  if (!any || !all) return;
  ++cluster_.phases;
  cluster_.complete = std::exchange(cluster_.known, {});
  wake(SplitState::AtCluster);
}

void Block::wait_cluster(Warp& warp, uint32_t lanes) {
  bool passed = true;
  for_each_lane(lanes, [&](int lane) { passed &= warp.cluster_phases[lane] <= cluster_.phases; });
  if (!passed) return warp.wait_for(SplitState::AtCluster);
  clocks.acquire(warp.lanes(lanes), cluster_.complete);
  if (lanes == warp.live()) clocks.lanes_meet(warp.index);
}

bool Block::chance() {
  random_ ^= random_ << 13;  // xorshift
  random_ ^= random_ >> 7;
  random_ ^= random_ << 17;
  return (random_ >> 40 & 1) != 0;
}

// What is as late as it may be is due now. If that is nothing, waits that may end by themselves do,
// a few times: after that nothing will ever come.
bool Block::go_on() {
  constexpr uint32_t kTimes = 64;
  if (bulk.perform_awaited()) return true;
  if (events_ != last_events_) fruitless_ = 0;
  last_events_ = events_;
  if (++fruitless_ > kTimes) return false;
  bool any = false;
  for (auto& warp : warps_)
    for (Split& split : warp->splits_) {
      if (split.state != SplitState::AtMbarrier) continue;
      split.state = SplitState::Ready;
      split.timed_out = any = true;
    }
  return any;
}

void Block::finish() {
  bulk.finish();
  mbarriers.finish(*warps_[0]);
}

void Block::thread_exited() {
  note_event();
  complete_cluster_if_arrived();
  for (int id = 0; id < kBarriers; ++id)
    if (barriers_[id].expected == 0) complete_if_arrived(id);
}

std::string Block::positions() {
  std::string text;
  for (auto& warp : warps_)
    for (const Split& split : warp->splits_) {
      std::string state = "runs";
      if (split.state == SplitState::AtBarrier) state = "waits at a barrier";
      if (split.state == SplitState::Converging) state = "waits for other lanes";
      if (split.state == SplitState::ForRegisters)
        state = fmt::format("waits for registers, {} are free", free_registers);
      if (split.state == SplitState::AtCluster) state = "waits at the cluster's barrier";
      if (split.state == SplitState::AtMbarrier)
        state = fmt::format("waits for parity {} ({})", split.parity,
                            mbarriers.describe(split.mbarrier));
      // A barrier's split stands behind it.
      int32_t at = split.at - (split.state == SplitState::AtBarrier ? 1 : 0);
      text += fmt::format("\n    warp {} lanes {:#010x} {} {}", warp->index, split.lanes, state,
                          describe(grid, at));
    }
  return text;
}

void Block::deadlock() {
  bool divergent = false;
  for (auto& warp : warps_)
    for (const Split& split : warp->splits_) divergent |= split.state == SplitState::Converging;
  Finding finding{divergent ? FindingKind::DivergentWarp : FindingKind::Deadlock,
                  fmt::format("no warp can go on:{}", positions()),
                  divergent
                      ? "let all lanes of a warp reach the instruction that needs them together"
                      : "let every warp arrive at each barrier as often as the others expect, and "
                        "an mbarrier expect as many bytes as come"};
  finding.block = index;
  for (auto& warp : warps_)
    for (const Split& split : warp->splits_) {
      if (divergent != (split.state == SplitState::Converging)) continue;
      locate(grid, split.at - (split.state == SplitState::AtBarrier ? 1 : 0), finding);
      throw Fault{finding};
    }
  throw Fault{finding};
}

}  // namespace kiln::ptx
