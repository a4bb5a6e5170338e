#include "runtime/ptx/shadow.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kiln::ptx {

namespace {

// Lanes that synchronise through memory are taken to do so for their warp.
Clocks::Lanes whole(uint32_t warp) {
  return {warp, ~0u, true};
}

template <class F>
void for_each_lane(uint32_t mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

uint32_t id_of(uint32_t warp, int lane) {
  return warp * 32 + static_cast<uint32_t>(lane);
}

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
  apart_.assign(warps, {});
  met_.assign(warps, 0);
  any_lane_ = false;
  agents_.clear();
  locations_.clear();
}

AgentId Clocks::agent(Kind kind, uint32_t id) {
  auto [it, is_new] = agents_.try_emplace(key_of(kind, id), static_cast<AgentId>(keys_.size()));
  if (is_new) {
    keys_.push_back({kind, id});
    for (Known& known : known_) known.clocks.resize(keys_.size());
  }
  return it->second;
}

void Clocks::lanes_meet(uint32_t warp) {
  for (const auto& [lane, known] : apart_[warp]) join(known_[warp], known);
  apart_[warp].clear();
  met_[warp] = ++known_[warp].clocks[warp];
}

// All lanes, what their warp has done; some of them, what it had done when they last met, and what
// they did since.
void Clocks::release(Lanes who, Known& to) {
  const auto warp = static_cast<AgentId>(who.warp);
  for_each_lane(who.mask, [&](int lane) {
    if (!who.all) agent(Kind::Lane, id_of(who.warp, lane));  // before what knows all agents is used
  });
  Known& known = known_[warp];
  const uint32_t now = known.clocks[warp];
  known.clocks[warp] = who.all ? now : std::max(met_[warp], 1u) - 1;
  join(to, known);
  known.clocks[warp] = now + 1;
  for (const auto& [lane, more] : apart_[warp])
    if (who.mask >> lane & 1) join(to, more);
  if (who.all) return;
  any_lane_ = true;
  for_each_lane(who.mask,
                [&](int lane) { learn(to, agent(Kind::Lane, id_of(who.warp, lane)), now); });
}

void Clocks::acquire(Lanes who, const Known& from) {
  if (who.all) return join(known_[who.warp], from);
  any_lane_ = true;
  for_each_lane(who.mask, [&](int lane) { join(apart_[who.warp][lane], from); });
}

void Clocks::learn(Known& to, AgentId agent, uint32_t clock) {
  if (to.clocks.size() <= agent) to.clocks.resize(agent + size_t{1});
  to.clocks[agent] = std::max(to.clocks[agent], clock);
}

void Clocks::learn(Lanes who, AgentId agent, uint32_t clock) {
  Known known;
  learn(known, agent, clock);
  acquire(who, known);
}

bool Clocks::ordered_by_lanes(AgentId agent, int lane, uint32_t clock, Lane later) const {
  const auto mine = apart_[later.warp].find(later.lane);
  const auto knows = [&](AgentId who) {
    const auto is_in = [&](const Known& known) {
      return who < known.clocks.size() && clock <= known.clocks[who];
    };
    return (who != later.warp && is_in(known_[later.warp])) ||
           (mine != apart_[later.warp].end() && is_in(mine->second));
  };
  if (knows(agent)) return true;
  if (!is_warp(agent)) return false;
  const auto apart = agents_.find(key_of(Kind::Lane, id_of(agent, lane)));
  return apart != agents_.end() && knows(apart->second);
}

bool Clocks::proxied(uint32_t warp, uint32_t clock, Lane later) const {
  if (clock <= known_[later.warp].proxied[warp]) return true;
  const auto mine = apart_[later.warp].find(later.lane);
  return mine != apart_[later.warp].end() && warp < mine->second.proxied.size() &&
         clock <= mine->second.proxied[warp];
}

void Clocks::fence_proxy(Lanes who) {
  const auto fence = [&](Known& known) {
    known.proxied.resize(warps_);
    for (size_t i = 0; i < std::min<size_t>(warps_, known.clocks.size()); ++i)
      known.proxied[i] = std::max(known.proxied[i], known.clocks[i]);
  };
  fence(known_[who.warp]);
  for (auto& [lane, known] : apart_[who.warp])
    if (who.mask >> lane & 1) fence(known);
  ++known_[who.warp].clocks[who.warp];
}

void Clocks::fence(uint32_t warp) {
  acquire(whole(warp), seen_[warp]);
  release(whole(warp), fenced_[warp]);
}

void Clocks::strong_write(uint32_t warp, uint64_t address, bool releases) {
  if (releases)
    release(whole(warp), locations_[address]);
  else
    join(locations_[address], fenced_[warp]);
}

void Clocks::strong_read(uint32_t warp, uint64_t address, bool acquires) {
  auto it = locations_.find(address);
  if (it == locations_.end()) return;
  join(seen_[warp], it->second);
  if (acquires) acquire(whole(warp), it->second);
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
      !clocks.ordered(cell.write_agent, cell.write_lane, cell.write_clock, {who.warp, who.lane})) {
    if (!clocks.is_warp(cell.write_agent)) clash.kind = Clash::Kind::Async;
    return clash;
  }
  if (is_own(who) || !clocks.is_warp(cell.write_agent) ||
      clocks.proxied(cell.write_agent, cell.write_clock, {who.warp, who.lane}))
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
  if (mine.agent != agent) mine = {};
  if (mine.clock != clock) {
    mine.older_lanes = std::exchange(mine.lanes, 0);
    mine.older_clock = mine.clock;
  }
  mine.agent = agent;
  mine.clock = clock;
  mine.lanes |= 1u << who.lane;
  mine.older_lanes &= ~mine.lanes;
  mine.instruction = who.instruction;
  return clash;
}

namespace {

// Of lanes that read, those after which nothing orders the accessor.
uint32_t unordered(AgentId agent, uint32_t lanes, uint32_t clock, const Accessor& who,
                   const Clocks& clocks) {
  if (clocks.ordered_for_all(agent, clock, who.warp)) return 0;
  uint32_t found = 0;
  if (agent == who.warp) lanes &= ~(1u << who.lane);
  for_each_lane(lanes, [&](int lane) {
    if (!clocks.ordered(agent, lane, clock, {who.warp, who.lane})) found |= 1u << lane;
  });
  return found;
}

}  // namespace

Clash write_cell(Cell& cell, const Accessor& who, const Clocks& clocks) {
  Clash clash = clash_with_write(cell, who, clocks);
  for (Cell::Read& read : cell.reads) {
    if (!clash)
      if (const uint32_t others =
              unordered(read.agent, read.lanes, read.clock, who, clocks) |
              unordered(read.agent, read.older_lanes, read.older_clock, who, clocks))
        clash = {Clash::Kind::Read, read.agent, std::countr_zero(others), read.instruction};
    read.lanes = read.older_lanes = 0;  // whoever comes after this write comes after them
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
