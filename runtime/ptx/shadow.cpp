#include "runtime/ptx/shadow.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kiln::ptx {

namespace {

void join(Clocks::Vector& to, const Clocks::Vector& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

void Clocks::join(Known& to, const Known& from) {
  kiln::ptx::join(to.clocks, from.clocks);
  kiln::ptx::join(to.proxied, from.proxied);
}

void Clocks::Known::clear() {
  clocks.clear();
  proxied.clear();
}

void Clocks::reset(uint32_t warps) {
  warps_ = warps;
  for (auto* all : {&known_, &fenced_, &seen_}) all->assign(warps, Known{});
  keys_.clear();
  for (uint32_t warp = 0; warp < warps; ++warp) {
    known_[warp].clocks.assign(warps, 0);
    known_[warp].proxied.assign(warps, 0);
    known_[warp].clocks[warp] = 1;
    keys_.push_back({Kind::Warp, warp});
  }
  met_.assign(warps, 0);
  agents_.clear();
  locations_.clear();
}

AgentId Clocks::agent(Kind kind, uint32_t id) {
  auto [it, is_new] = agents_.try_emplace(static_cast<uint64_t>(kind) << 32 | id,
                                          static_cast<AgentId>(keys_.size()));
  if (is_new) {
    keys_.push_back({kind, id});
    for (Known& known : known_) known.clocks.resize(keys_.size());
  }
  return it->second;
}

void Clocks::release(uint32_t warp, Known& to) {
  join(to, known_[warp]);
  ++known_[warp].clocks[warp];
}

void Clocks::acquire(uint32_t warp, const Known& from) {
  join(known_[warp], from);
}

void Clocks::learn(Known& to, AgentId agent, uint32_t clock) {
  if (to.clocks.size() <= agent) to.clocks.resize(agent + size_t{1});
  to.clocks[agent] = std::max(to.clocks[agent], clock);
}

void Clocks::learn(uint32_t warp, AgentId agent, uint32_t clock) {
  learn(known_[warp], agent, clock);
}

void Clocks::fence_proxy(uint32_t warp) {
  Known& known = known_[warp];
  for (size_t i = 0; i < known.proxied.size(); ++i)
    known.proxied[i] = std::max(known.proxied[i], known.clocks[i]);
  ++known.clocks[warp];
}

void Clocks::fence(uint32_t warp) {
  acquire(warp, seen_[warp]);
  release(warp, fenced_[warp]);
}

void Clocks::strong_write(uint32_t warp, uint64_t address, bool releases) {
  if (releases)
    release(warp, locations_[address]);
  else
    join(locations_[address], fenced_[warp]);
}

void Clocks::strong_read(uint32_t warp, uint64_t address, bool acquires) {
  auto it = locations_.find(address);
  if (it == locations_.end()) return;
  join(seen_[warp], it->second);
  if (acquires) acquire(warp, it->second);
}

namespace {

bool is_own(const Accessor& who) {
  return who.agent == 0;
}

// The last write against an access now.
Clash clash_with_write(const Cell& cell, const Accessor& who, const Clocks& clocks) {
  if (cell.write_clock == 0) return {};
  Clash clash{Clash::Kind::Write, cell.write_agent, cell.write_lane, cell.write_instruction};
  if (cell.async) {
    clash.kind = Clash::Kind::Async;
    return clash;
  }
  const bool mine = cell.write_agent == who.warp && cell.write_lane == who.lane;
  if (!mine && !(cell.strong && who.strong) &&
      !clocks.ordered(cell.write_agent, cell.write_clock, who.warp)) {
    if (!clocks.is_warp(cell.write_agent)) clash.kind = Clash::Kind::Async;
    return clash;
  }
  if (is_own(who) || !clocks.is_warp(cell.write_agent) ||
      clocks.proxied(cell.write_agent, cell.write_clock, who.warp))
    return {};
  clash.kind = Clash::Kind::Proxy;
  return clash;
}

}  // namespace

Clash read_cell(Cell& cell, const Accessor& who, const Clocks& clocks) {
  Clash clash = clash_with_write(cell, who, clocks);
  if (!clash && !cell.initialized) clash.kind = Clash::Kind::Uninitialized;
  if (who.strong) return clash;  // a strong write may follow
  const AgentId agent = is_own(who) ? static_cast<AgentId>(who.warp) : who.agent;
  const uint32_t clock = is_own(who) ? clocks.now(who.warp) : who.clock;
  if (cell.reads[0].agent != agent) std::swap(cell.reads[0], cell.reads[1]);
  Cell::Read& mine = cell.reads[0];
  if (mine.agent != agent || mine.clock != clock) mine.lanes = 0;
  mine.agent = agent;
  mine.clock = clock;
  mine.lanes |= 1u << who.lane;
  mine.instruction = who.instruction;
  return clash;
}

Clash write_cell(Cell& cell, const Accessor& who, const Clocks& clocks) {
  Clash clash = clash_with_write(cell, who, clocks);
  for (Cell::Read& read : cell.reads) {
    uint32_t others = read.agent == who.warp ? read.lanes & ~(1u << who.lane) : read.lanes;
    if (!clash && others != 0 && !clocks.ordered(read.agent, read.clock, who.warp))
      clash = {Clash::Kind::Read, read.agent, std::countr_zero(others), read.instruction};
    read.lanes = 0;  // whoever comes after this write comes after them
  }
  cell.write_agent = is_own(who) ? static_cast<AgentId>(who.warp) : who.agent;
  cell.write_clock = is_own(who) ? clocks.now(who.warp) : who.clock;
  cell.write_instruction = who.instruction;
  cell.write_lane = static_cast<uint8_t>(who.lane);
  cell.strong = who.strong;
  cell.async = who.async;
  cell.initialized = true;
  return clash;
}

void GlobalShadow::reset() {
  for (auto& [address, page] : pages_) free_.push_back(std::move(page));
  pages_.clear();
  forget_parts();
  last_ = ~uint64_t{0};
}

void GlobalShadow::find(uint64_t page) {
  auto& found = pages_[page];
  if (!found) {
    if (free_.empty()) {
      found = std::make_unique<Page>();
    } else {
      found = std::move(free_.back());
      free_.pop_back();
      found->fill(Cell{});
    }
  }
  last_ = page;
  cells_ = found.get();
}

}  // namespace kiln::ptx
