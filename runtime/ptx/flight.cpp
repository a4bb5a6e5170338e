#include "runtime/ptx/flight.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/ptx/warp.h"

namespace kiln::ptx {
namespace {

const std::string& name_of(Warp& warp, int32_t slot) {
  return warp.block().grid.entry.wgmma_names[static_cast<size_t>(slot)];
}

// Of a wgmma: accumulators as results, then as operands, then perhaps a's registers.
bool is_source(const Instruction& in, uint32_t operand) {
  return operand >= 2u * in.count;
}

}  // namespace

void Flight::reset() {
  std::fill(registers_.begin(), registers_.end(), Register{});
  pending_.clear();
  committed_ = retired_ = epoch_ = 0;
}

bool Flight::ignores(Warp& warp, const Instruction& in, uint32_t operand) {
  return in.source->opcode == "wgmma" && !is_source(in, operand) &&
         warp.predicate(in.operand[in.operands - 1]) == 0;
}

void Flight::check(Warp& warp, const Instruction& in) {
  const auto& names = warp.block().grid.entry.wgmma_names;
  for (uint32_t i = 0; i < in.operands; ++i) {
    const Operand& operand = in.operand[i];
    if (operand.slot < 0 || operand.bytes == 0) continue;
    if (names[static_cast<size_t>(operand.slot)].empty()) continue;
    Register& r = registers_[static_cast<size_t>(operand.slot)];
    r.touched = epoch_;
    const bool writes = operand.role == OperandRole::Define;
    const bool accumulates = r.accumulator > retired_;
    if (!accumulates && !(writes && r.source > retired_)) continue;
    warp.report(FindingKind::RegisterInFlight,
                fmt::format("warp {} {} '{}', {} of a wgmma that it has not awaited, {}",
                            warp.index, writes ? "writes" : "reads", name_of(warp, operand.slot),
                            accumulates ? "an accumulator" : "operand a",
                            describe(warp.block().grid, r.position)),
                "wgmma.commit_group and wgmma.wait_group between the two");
  }
}

void Flight::check_own(Warp& warp, const Wgmma& wgmma) {
  const Instruction& in = *wgmma.in;
  const auto columns = static_cast<uint32_t>(columns_of(in));
  const auto& names = warp.block().grid.entry.wgmma_names;
  for (uint32_t i = 0; i < in.operands; ++i) {
    const Operand& operand = in.operand[i];
    if (operand.slot < 0 || operand.bytes == 0) continue;
    if (operand.role == OperandRole::Use && !is_source(in, i)) continue;  // seen as a result
    if (names[static_cast<size_t>(operand.slot)].empty()) continue;       // a descriptor
    Register& r = registers_[static_cast<size_t>(operand.slot)];
    const bool source = is_source(in, i);
    if (r.touched == epoch_)
      warp.report(FindingKind::RegisterInFlight,
                  fmt::format("warp {}: '{}' is {} here and no wgmma.fence stands between this and "
                              "what touched it before",
                              warp.index, name_of(warp, operand.slot),
                              source ? "operand a" : "an accumulator"),
                  "wgmma.fence.sync.aligned before the first wgmma and wherever other instructions "
                  "have touched its registers");
    const bool taken =
        source ? r.accumulator > retired_
               : r.source > retired_ || (r.accumulator > retired_ && r.columns != columns);
    if (taken)
      warp.report(FindingKind::RegisterInFlight,
                  fmt::format("warp {}: '{}' is {} here and still in use by a wgmma {}", warp.index,
                              name_of(warp, operand.slot), source ? "operand a" : "an accumulator",
                              describe(warp.block().grid, r.position)),
                  "wgmma.wait_group between the two");
    (source ? r.source : r.accumulator) = wgmma.group + 1;
    if (!source) r.columns = columns;
    r.position = warp.position();
  }
}

void Flight::begin(Warp& warp, const Wgmma& wgmma) {
  check_own(warp, wgmma);
  pending_.push_back(wgmma);
  Block& block = warp.block();
  if (block.clock)
    pending_.back().due = block.clock->product(warp.index, *wgmma.in, columns_of(*wgmma.in),
                                               a_in_registers(*wgmma.in));
  const AsyncMode mode = block.grid.options.async;
  if (mode == AsyncMode::AtIssue || (mode == AsyncMode::Random && block.chance()))
    compute(warp, pending_.size());
}

// Those of a warp take place in order: they share accumulators.
void Flight::compute(Warp& warp, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (!std::exchange(pending_[i].done, true)) multiply(warp, pending_[i]);
}

void Flight::wait(Warp& warp, uint32_t open) {
  const uint32_t until = committed_ > open ? committed_ - open : 0;
  if (until <= retired_) return;
  const auto end = std::find_if(pending_.begin(), pending_.end(),
                                [&](const Wgmma& wgmma) { return wgmma.group >= until; });
  const auto count = static_cast<size_t>(end - pending_.begin());
  compute(warp, count);
  for (size_t i = 0; i < count; ++i) {
    warp.wait_until(pending_[i].due, Interval::Kind::WaitProducts);
    if (auto& clock = warp.block().clock)
      clock->results(warp.index, *pending_[i].in, pending_[i].due);
  }
  warp.profile().completed += count;
  pending_.erase(pending_.begin(), end);
  retired_ = until;
  Clocks& clocks = warp.block().clocks;
  clocks.learn(warp.lanes(warp.live()), clocks.agent(Clocks::Kind::Wgmma, warp.index), until);
}

}  // namespace kiln::ptx
