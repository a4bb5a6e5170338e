// A block: its warps take turns; barriers; what can end it.
#include <fmt/format.h>

#include <algorithm>

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
  for (Barrier& barrier : barriers_) barrier = Barrier{};
  for (auto& warp : warps_) warp->reset();

  for (;;) {
    bool any = false, all_done = true;
    uint64_t instructions = 0;
    for (auto& warp : warps_) {
      if (!warp->done()) any |= warp->run();
      all_done &= warp->done();
      instructions += warp->turns;
    }
    if (all_done) return;
    if (!any) deadlock();
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
  // A barrier counts whole warps; the last one may have fewer threads.
  bool whole = (lanes | ~warp.exists) == kAllLanes && expected != 0;
  barrier.arrived += whole ? kLanes : static_cast<uint32_t>(std::popcount(lanes));
  barrier.voters += static_cast<uint32_t>(std::popcount(lanes));
  barrier.votes += static_cast<uint32_t>(std::popcount(votes));
  clocks.release(warp.index, barrier.known);
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
    if (released != 0) clocks.acquire(warp->index, barrier.known);
  }
  barrier = Barrier{};
}

void Block::thread_exited() {
  for (int id = 0; id < kBarriers; ++id)
    if (barriers_[id].expected == 0) complete_if_arrived(id);
}

std::string Block::positions() {
  std::string text;
  for (auto& warp : warps_)
    for (const Split& split : warp->splits_) {
      std::string_view state = split.state == SplitState::AtBarrier    ? "waits at a barrier"
                               : split.state == SplitState::Converging ? "waits for other lanes"
                                                                       : "runs";
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
                      : "let every warp arrive at each barrier as often as the others expect"};
  finding.block = index;
  for (auto& warp : warps_)
    for (const Split& split : warp->splits_) {
      if (divergent != (split.state == SplitState::Converging)) continue;
      locate(grid, split.at - (divergent ? 0 : 1), finding);
      throw Fault{finding};
    }
  throw Fault{finding};
}

}  // namespace kiln::ptx
