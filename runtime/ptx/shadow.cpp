#include "runtime/ptx/shadow.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace kiln::ptx {

void Clocks::reset(uint32_t warps) {
  for (auto* vectors : {&clocks_, &fenced_, &seen_})
    for (Vector& vector : *vectors) vector.fill(0);
  for (uint32_t warp = 0; warp < warps; ++warp) clocks_[warp][warp] = 1;
  met_.fill(0);
  locations_.clear();
}

namespace {
void join(Clocks::Vector& to, const Clocks::Vector& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
}
}  // namespace

void Clocks::release(uint32_t warp, Vector& to) {
  join(to, clocks_[warp]);
  ++clocks_[warp][warp];
}

void Clocks::acquire(uint32_t warp, const Vector& from) {
  join(clocks_[warp], from);
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

bool is_mine(const Cell& cell, const Accessor& who) {
  return cell.write_warp == who.warp && cell.write_lane == who.lane;
}

// The last write against an access now.
Clash clash_with_write(const Cell& cell, const Accessor& who, const Clocks& clocks) {
  if (cell.write_clock == 0) return {};
  Clash clash{Clash::Kind::Write, cell.write_warp * 32u + cell.write_lane, cell.write_instruction};
  if (cell.async) {
    clash.kind = Clash::Kind::Async;
    return clash;
  }
  if (is_mine(cell, who) || (cell.strong && who.strong) ||
      clocks.ordered(cell.write_warp, cell.write_clock, who.warp))
    return {};
  return clash;
}

}  // namespace

Clash read_cell(Cell& cell, const Accessor& who, const Clocks& clocks) {
  Clash clash = clash_with_write(cell, who, clocks);
  if (!clash && !cell.initialized) clash.kind = Clash::Kind::Uninitialized;
  if (who.strong) return clash;  // a strong write may follow
  if (cell.reads[0].warp != who.warp) std::swap(cell.reads[0], cell.reads[1]);
  Cell::Read& mine = cell.reads[0];
  uint32_t clock = clocks.now(who.warp);
  if (mine.warp != who.warp || mine.clock != clock) mine.lanes = 0;
  mine.warp = who.warp;
  mine.clock = clock;
  mine.lanes |= 1u << who.lane;
  mine.instruction = who.instruction;
  return clash;
}

Clash write_cell(Cell& cell, const Accessor& who, const Clocks& clocks) {
  Clash clash = clash_with_write(cell, who, clocks);
  for (Cell::Read& read : cell.reads) {
    uint32_t others = read.warp == who.warp ? read.lanes & ~(1u << who.lane) : read.lanes;
    if (!clash && others != 0 && !clocks.ordered(read.warp, read.clock, who.warp))
      clash = {Clash::Kind::Read, read.warp * 32 + static_cast<uint32_t>(std::countr_zero(others)),
               read.instruction};
    read.lanes = 0;  // whoever comes after this write comes after them
  }
  cell.write_clock = clocks.now(who.warp);
  cell.write_instruction = who.instruction;
  cell.write_warp = static_cast<uint8_t>(who.warp);
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
