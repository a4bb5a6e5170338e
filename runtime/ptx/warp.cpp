// Warps: lanes part at branches, and wait for each other where they can meet. The lanes in the
// block of lowest order run first (order.cpp), so that they meet as early as the control flow
// allows; lanes that run for long while others wait let those run too, so that no spinning lane
// starves them.
#include "runtime/ptx/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

constexpr uint64_t kTurn = 4096;      // instructions of one warp before the next gets to run
constexpr uint32_t kPatience = 1024;  // choices in favour of the lowest order, in a row

}  // namespace

Warp::Warp(Block& block, uint32_t index) : index(index), block_(block) {
  const Grid& grid = block.grid;
  uint32_t threads = grid.threads() - index * kLanes;
  exists = threads >= kLanes ? kAllLanes : (1u << threads) - 1;
  size_t bytes = static_cast<size_t>(grid.entry.slots) * kSlotBytes;
  memory_ = std::make_unique<std::byte[]>(bytes + 64);
  std::memset(memory_.get(), 0xA5, bytes + 64);  // what nothing writes must not matter
  auto begin = reinterpret_cast<uintptr_t>(memory_.get());
  file_ = memory_.get() + ((64 - begin % 64) % 64);
  constants_ = reinterpret_cast<const std::byte*>(grid.entry.constants.data());
  predicates_.resize(static_cast<size_t>(grid.entry.predicates));
  defined_.resize(grid.entry.watched_names.size());
  flight.resize(grid.entry.wgmma_names.size());
}

void Warp::reset() {
  const Grid& grid = block_.grid;
  splits_.assign(1, Split{0, exists});
  current_ = 0;
  position_ = 0;
  unfair_ = 0;
  carry = 0;
  turns = 0;
  pending.clear();
  flight.reset();
  registers = launch_registers(grid);
  std::fill(std::begin(cluster_phases), std::end(cluster_phases), 0);
  std::fill(std::begin(groups), std::end(groups), 0);
  std::fill(predicates_.begin(), predicates_.end(), 0);
  std::fill(defined_.begin(), defined_.end(), 0);
  if (local_) std::memset(local_.get(), 0, grid.entry.local_bytes * kLanes);
  const Dim3 &block = grid.block, &at = block_.index, &size = grid.grid;
  for (auto [special, slot] : grid.entry.specials) {
    std::byte* lanes = file_ + static_cast<size_t>(slot) * kSlotBytes;
    for (int lane = 0; lane < kLanes; ++lane) {
      uint32_t id = thread(lane), bit = 1u << lane;
      uint32_t values[] = {id % block.x,
                           id / block.x % block.y,
                           id / block.x / block.y,
                           block.x,
                           block.y,
                           block.z,
                           at.x,
                           at.y,
                           at.z,
                           size.x,
                           size.y,
                           size.z,
                           static_cast<uint32_t>(lane),
                           index,
                           (grid.threads() + kLanes - 1) / kLanes,
                           0,
                           1,
                           bit,
                           bit - 1,
                           bit - 1 + bit,
                           ~(bit - 1 + bit),
                           ~(bit - 1),
                           static_cast<uint32_t>(grid.dynamic_shared),
                           static_cast<uint32_t>(grid.shared_bytes)};
      set<uint32_t>(lanes, lane, values[static_cast<size_t>(special)]);
    }
  }
}

std::byte* Warp::local(int lane) {
  uint64_t bytes = block_.grid.entry.local_bytes;
  if (!local_) local_ = std::make_unique<std::byte[]>(bytes * kLanes + 16);
  return local_.get() + bytes * static_cast<uint64_t>(lane);
}

uint32_t Warp::live() const {
  uint32_t lanes = 0;
  for (const Split& split : splits_) lanes |= split.lanes;
  return lanes;
}

InstructionProfile& Warp::profile() {
  return block_.profile[static_cast<size_t>(position_)];
}

bool Warp::choose() {
  size_t best = splits_.size();
  bool fair = unfair_ >= kPatience;
  const auto& code = block_.grid.entry.code;
  for (size_t i = 0; i < splits_.size(); ++i) {
    const Split& split = splits_[i];
    if (split.state != SplitState::Ready) continue;
    if (best == splits_.size()) {
      best = i;
      continue;
    }
    const Split& other = splits_[best];
    bool first = fair ? split.last_turn < other.last_turn
                      : std::pair(code[static_cast<size_t>(split.at)].order, split.at) <
                            std::pair(code[static_cast<size_t>(other.at)].order, other.at);
    if (first) best = i;
  }
  if (best == splits_.size()) return false;
  current_ = best;
  if (splits_.size() > 1) {
    ++unfair_;
    merge_into_current();
  }
  splits_[current_].last_turn = turns;
  return true;
}

// Lanes that are at the same instruction go on together.
void Warp::merge_into_current() {
  for (size_t i = splits_.size(); i-- > 0;) {
    const Split& other = splits_[i];
    if (i == current_ || other.at != splits_[current_].at || other.state == SplitState::AtBarrier)
      continue;
    splits_[current_].lanes |= splits_[i].lanes;
    splits_.erase(splits_.begin() + static_cast<std::ptrdiff_t>(i));
    if (i < current_) --current_;
    unfair_ = 0;
  }
}

bool Warp::run() {
  bool any = false;
  uint64_t until = turns + (block_.clock ? 1 : kTurn);
  while (turns < until && choose()) {
    any = true;
    step_split();
  }
  return any;
}

// Runs the current split to the end of its basic block, or on while it is the only one.
void Warp::step_split() {
  const auto& code = block_.grid.entry.code;
  auto& profiles = block_.profile;
  for (uint64_t until = turns + (block_.clock ? 1 : kTurn); turns < until;) {
    position_ = splits_[current_].at;
    const Instruction& in = code[static_cast<size_t>(position_)];
    if (in.together) {
      if (splits_.size() > 1) merge_into_current();
      if (!converge(in)) return;
    }
    Split& split = splits_[current_];
    uint32_t lanes = split.lanes;
    ++turns;
    InstructionProfile& profile = profiles[static_cast<size_t>(position_)];
    if (in.guard >= 0) {
      lanes &= guard(in);
      profile.held_back += static_cast<uint64_t>(std::popcount(split.lanes & ~lanes));
    }
    if (block_.clock) block_.clock->issue(index, in, lanes != 0);
    ++profile.warps;
    profile.lanes += static_cast<uint64_t>(std::popcount(lanes));
    if (in.check_defined) check_defined(in, lanes);
    if (in.check_flight && lanes != 0) flight.check(*this, in);
    switch (in.flow) {
      case Flow::Next:
        if (lanes != 0) in.run(*this, in, lanes);
        ++split.at;
        break;
      case Flow::Branch: branch(in, lanes); return;
      case Flow::BranchTable: branch_table(in, lanes); return;
      case Flow::Exit: exit(lanes); return;
      case Flow::Barrier:
        ++split.at;
        if (lanes != 0) in.run(*this, in, lanes);
        return;
      case Flow::Yield: ++split.at; return;
      case Flow::Wait:
        if (lanes != 0) in.run(*this, in, lanes);
        if (must_wait()) {  // it has not run
          --profile.warps;
          profile.lanes -= static_cast<uint64_t>(std::popcount(lanes));
          return;
        }
        splits_[current_].timed_out = false;
        ++splits_[current_].at;
        break;
    }
    if (splits_.size() > 1 && code[static_cast<size_t>(split.at)].leader) return;
  }
}

const Instruction& Warp::instruction() const {
  return block_.grid.entry.code[static_cast<size_t>(position_)];
}

void Warp::wait_until(uint64_t clock, Interval::Kind what, uint64_t mbarrier) {
  if (block_.clock) block_.clock->wait(index, clock, what, instruction(), mbarrier);
}

void Warp::branch(const Instruction& in, uint32_t lanes) {
  Split& split = splits_[current_];
  uint32_t rest = split.lanes & ~lanes;
  int32_t next = split.at + 1;
  if (lanes == 0) {
    split.at = next;
  } else {
    split.lanes = lanes;
    split.at = in.target;
    if (rest != 0) splits_.push_back({next, rest});
  }
}

void Warp::branch_table(const Instruction& in, uint32_t lanes) {
  const auto& targets = block_.grid.entry.tables[static_cast<size_t>(in.target)];
  const std::byte* values = at(in.operand[0]);
  Split split = splits_[current_];
  splits_.erase(splits_.begin() + static_cast<std::ptrdiff_t>(current_));
  if (split.lanes & ~lanes) splits_.push_back({split.at + 1, split.lanes & ~lanes});
  while (lanes != 0) {
    uint32_t value = lane32(values, std::countr_zero(lanes));
    uint32_t same = lanes_where(lanes, [&](int lane) { return lane32(values, lane) == value; });
    if (value >= targets.size())
      fault(FindingKind::OutOfBounds,
            fmt::format("index {} of a table of {} labels", value, targets.size()),
            "bound the index before the branch");
    splits_.push_back({targets[value], same});
    lanes &= ~same;
  }
}

void Warp::exit(uint32_t lanes) {
  Split& split = splits_[current_];
  ++split.at;
  split.lanes &= ~lanes;
  if (split.lanes == 0) splits_.erase(splits_.begin() + static_cast<std::ptrdiff_t>(current_));
  unfair_ = 0;
  std::erase_if(pending, [&](const PendingCopy& copy) { return lanes >> copy.lane & 1; });
  block_.bulk.thread_exits(*this, lanes);
  block_.thread_exited();
}

// Whether all lanes that must run this instruction together are here; if not, these wait.
bool Warp::converge(const Instruction& in) {
  Split& split = splits_[current_];
  uint32_t lanes = in.guard >= 0 ? split.lanes & guard(in) : split.lanes;
  if (lanes == 0) return true;
  uint32_t needed = live();
  if (in.members >= 0) {
    const std::byte* masks = at(in.operand[static_cast<size_t>(in.members)]);
    uint32_t members = lane32(masks, std::countr_zero(lanes));
    if (uint32_t outside = lanes & ~members; outside != 0)
      fault(FindingKind::DivergentWarp,
            fmt::format("lane {} runs it and is not in its mask {:#x}", std::countr_zero(outside),
                        members),
            "name every lane that runs the instruction in its mask");
    needed &= members;
  }
  uint32_t missing = needed & ~lanes;
  if (missing == 0) return true;
  if (uint32_t here = missing & split.lanes; here != 0)
    fault(FindingKind::DivergentWarp,
          fmt::format("lane {} skips it by its predicate while others run it",
                      std::countr_zero(here)),
          "let all lanes of the warp run it, or none");
  split.state = SplitState::Converging;
  return false;
}

void Warp::wait_for(uint64_t mbarrier, uint32_t parity) {
  Split& split = splits_[current_];
  if (split.timed_out || tries_first()) return;
  split.state = SplitState::AtMbarrier;
  split.mbarrier = mbarrier;
  split.parity = parity;
}

void Warp::wait_for(SplitState what) {
  splits_[current_].state = what;
}

void Warp::check_defined(const Instruction& in, uint32_t lanes) {
  const auto& watched = block_.grid.entry.watched;
  auto find = [&](int32_t key) {
    auto it = watched.find(key);
    return it == watched.end() ? -1 : it->second;
  };
  auto read = [&](int32_t bit, uint32_t needed) {
    uint32_t missing = needed & ~defined_[static_cast<size_t>(bit)];
    if (missing == 0 || !block_.grid.options.check_uninitialized) return;
    report(FindingKind::UninitializedRegister,
           fmt::format("{} reads '{}', which nothing was written to",
                       thread_name(std::countr_zero(missing)),
                       block_.grid.entry.watched_names[static_cast<size_t>(bit)]),
           "give the register a value on every path to here");
  };
  if (in.guard >= 0)
    if (int32_t bit = find(~in.guard); bit >= 0) read(bit, splits_[current_].lanes);
  if (lanes == 0) return;
  for (uint32_t i = 0; i < in.operands; ++i) {
    const Operand& operand = in.operand[i];
    if (operand.slot < 0) continue;
    int32_t bit = find(operand.bytes == 0 ? ~operand.slot : operand.slot);
    if (bit < 0) continue;
    if (operand.role == OperandRole::Define)
      defined_[static_cast<size_t>(bit)] |= lanes;
    else if (in.source->opcode != "mov" && in.source->opcode != "selp" &&  // compilers copy them
             !Flight::ignores(*this, in, i))
      read(bit, lanes);
  }
}

}  // namespace kiln::ptx
