// What happens to mbarriers, and what can be wrong about it.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/ptx/access.h"
#include "runtime/ptx/warp.h"

namespace kiln::ptx {

void Mbarriers::init(Warp& warp, int lane, uint64_t address, uint32_t count) {
  if (count < 1 || count > kMost)
    warp.fault(
        FindingKind::Mbarrier,
        fmt::format("{} initialises an mbarrier for {} arrivals", warp.thread_name(lane), count),
        fmt::format("1 to {} arrivals", kMost));
  Mbarrier& made = all_[address];
  made = Mbarrier{};
  made.address = address;
  made.count = made.pending = count;
  // Copies that an earlier mbarrier at this address counted are not those of this one.
  made.agent = block_.clocks.agent(Clocks::Kind::Mbarrier,
                                   made_++ << kAddressBits | static_cast<uint32_t>(address));
  made.maker = warp.index;
  made.maker_lane = lane;
  made.made = block_.clocks.now(warp.index);
  made.position = warp.position();
  made.seen.assign(kLanes, -1);
  block_.note_event();
}

void Mbarriers::invalidate(Warp& warp, int lane, uint64_t address) {
  find(warp, lane, address);
  all_.erase(address);
}

Mbarrier* Mbarriers::at(uint64_t address) {
  auto it = all_.find(address);
  return it == all_.end() ? nullptr : &it->second;
}

Mbarrier& Mbarriers::find(Warp& warp, int lane, uint64_t address, bool async) {
  Mbarrier* found = at(address);
  if (!found)
    warp.fault(FindingKind::Mbarrier,
               fmt::format("{}: there is no mbarrier at {}", warp.thread_name(lane),
                           describe_address(block_.grid, Space::Shared, address)),
               "initialise it first (mbarrier.init), and let a barrier follow");
  const bool mine = found->maker == warp.index && found->maker_lane == lane;
  if (!mine && block_.grid.options.check_races &&
      !block_.clocks.ordered(static_cast<AgentId>(found->maker), found->maker_lane, found->made,
                             {warp.index, lane}))
    warp.report(FindingKind::Race,
                fmt::format("{} uses the mbarrier at {}, which warp {} initialises, and no barrier "
                            "orders the two",
                            warp.thread_name(lane),
                            describe_address(block_.grid, Space::Shared, address), found->maker),
                "put a barrier behind mbarrier.init");
  if (async && !found->published && block_.grid.options.check_races)
    warp.report(
        FindingKind::ProxyFence,
        fmt::format("a copy of {} counts on the mbarrier at {}, whose initialisation the "
                    "async proxy need not see",
                    warp.thread_name(lane), describe_address(block_.grid, Space::Shared, address)),
        "fence.mbarrier_init.release.cluster behind mbarrier.init");
  return *found;
}

void Mbarriers::arrive(Warp& warp, Mbarrier& barrier, uint32_t count, uint32_t lanes) {
  if (count > barrier.pending)
    warp.fault(FindingKind::Mbarrier,
               fmt::format("{} arrivals at the mbarrier at {}, of whose phase {} only {} of {} are "
                           "to come",
                           count, describe_address(block_.grid, Space::Shared, barrier.address),
                           barrier.phases, barrier.pending, barrier.count),
               "initialise it for as many arrivals as come in a phase, and wait before the next");
  barrier.pending -= count;
  barrier.position = warp.position();
  barrier.arrivals.push_back(warp.position());
  const Mbarrier::Arrival arrival = {static_cast<AgentId>(warp.index),
                                     lanes != 0 ? std::countr_zero(lanes) : 0,
                                     block_.clocks.now(warp.index)};
  if (lanes != 0) block_.clocks.release(warp.lanes(lanes), barrier.arrived);
  if (block_.clock) barrier.due = std::max(barrier.due, block_.clock->arrival(warp.index));
  block_.note_event();
  complete_if_done(barrier, arrival);
}

void Mbarriers::expect(Warp& warp, Mbarrier& barrier, int64_t bytes) {
  barrier.bytes += bytes;
  barrier.position = warp.position();
  if (barrier.bytes > kMost || barrier.bytes < -kMost)
    warp.fault(
        FindingKind::Mbarrier,
        fmt::format("the mbarrier at {} expects {} bytes",
                    describe_address(block_.grid, Space::Shared, barrier.address), barrier.bytes),
        "an mbarrier counts up to 2^20 - 1 bytes");
  block_.note_event();
  complete_if_done(barrier, {});
}

void Mbarriers::complete(Warp& warp, Mbarrier& barrier, const BulkCopy& copy) {
  if (barrier.phases != copy.issued) {
    Finding finding{
        FindingKind::Mbarrier,
        fmt::format("phase {} of the mbarrier at {} is complete before a copy of {} bytes that "
                    "was begun in it",
                    copy.issued, describe_address(block_.grid, Space::Shared, barrier.address),
                    copy.bytes),
        "expect the bytes of all copies of a phase (mbarrier.arrive.expect_tx)"};
    warp.report_at(copy.position, std::move(finding));
  }
  barrier.bytes -= copy.bytes;
  barrier.due = std::max(barrier.due, copy.due);
  block_.note_event();
  complete_if_done(barrier, {});
}

void Mbarriers::complete_if_done(Mbarrier& barrier, std::optional<Mbarrier::Arrival> by) {
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  ++barrier.phases;
  barrier.ended = by;
  barrier.pending = barrier.count;
  barrier.unseen.insert(barrier.unseen.end(), barrier.arrivals.begin(), barrier.arrivals.end());
  barrier.arrivals.clear();
  barrier.polls = 0;
  barrier.completed = std::exchange(barrier.due, 0);
  Clocks::learn(barrier.arrived, barrier.agent, barrier.phases);
  Clocks::join(barrier.complete, barrier.arrived);
  barrier.arrived.clear();
  block_.wake(barrier.address);
}

bool Mbarriers::is_known(const Warp& warp, int lane, const Mbarrier& barrier,
                         uint32_t phases) const {
  const Clocks::Lane here = {warp.index, lane};
  const auto& by = barrier.ended;
  return phases == 0 || block_.clocks.ordered(barrier.agent, 0, phases, here) ||
         (by &&
          (by->warp == warp.index || block_.clocks.ordered(by->warp, by->lane, by->clock, here)));
}

void Mbarriers::see(Warp& warp, Mbarrier& barrier, uint32_t lanes, bool acquires) {
  if (acquires) block_.clocks.acquire(warp.lanes(lanes), barrier.complete);
  warp.wait_until(barrier.completed, Interval::Kind::WaitMbarrier, barrier.address);
  barrier.polls = 0;
  for (int32_t position : std::exchange(barrier.unseen, {}))
    ++block_.profile[static_cast<size_t>(position)].completed;
  int64_t& seen = barrier.seen[warp.index];
  if (seen >= 0 && barrier.phases > seen + 1)
    warp.report(
        FindingKind::Mbarrier,
        fmt::format("warp {} waits at the mbarrier at {}, of which {} phases have completed "
                    "since it last did",
                    warp.index, describe_address(block_.grid, Space::Shared, barrier.address),
                    barrier.phases - seen),
        "wait for every phase: a parity tells one phase from the next only");
  seen = barrier.phases;
}

void Mbarriers::publish(uint32_t warp, int lane) {
  for (auto& [address, barrier] : all_)
    barrier.published |= barrier.maker == warp ||
                         block_.clocks.ordered(static_cast<AgentId>(barrier.maker),
                                               barrier.maker_lane, barrier.made, {warp, lane});
}

void Mbarriers::finish(Warp& warp) {
  std::vector<uint64_t> wrong;
  for (auto& [address, barrier] : all_)
    if (barrier.bytes != 0) wrong.push_back(address);
  std::sort(wrong.begin(), wrong.end());
  for (uint64_t address : wrong) {
    const Mbarrier& barrier = all_.at(address);
    Finding finding{FindingKind::Mbarrier,
                    fmt::format("all threads have left, and {}", describe(address)),
                    "expect as many bytes as the copies bring"};
    warp.report_at(barrier.position, std::move(finding));
  }
}

std::string Mbarriers::describe(uint64_t address) const {
  auto it = all_.find(address);
  if (it == all_.end()) return "there is none";
  const Mbarrier& barrier = it->second;
  std::string bytes;
  if (barrier.bytes > 0) bytes = fmt::format(", {} bytes are to come", barrier.bytes);
  if (barrier.bytes < 0) bytes = fmt::format(", {} bytes came that none expected", -barrier.bytes);
  return fmt::format("the mbarrier at {} is in phase {}: {} of {} arrivals are to come{}",
                     describe_address(block_.grid, Space::Shared, address), barrier.phases,
                     barrier.pending, barrier.count, bytes);
}

}  // namespace kiln::ptx
