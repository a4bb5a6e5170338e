// mbarrier instructions. A state of 64 bits holds the phase in its upper half and the arrivals that
// were pending in the lower.
#include "runtime/ptx/mbarrier.h"

#include <fmt/format.h>

#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"

namespace kiln::ptx {
namespace {

// Instruction::a of all of them, and what else they are, in Instruction::b.
constexpr uint8_t kExpects = 1, kDrops = 2, kStays = 4, kRelaxed = 8;  // arrivals
constexpr uint32_t kPatience = 1024;         // tests in vain before what they ask for is due
constexpr uint8_t kParity = 1, kBlocks = 2;  // waits

// Calls f(lane, address of shared memory).
template <class F>
void for_each_barrier(Warp& warp, const Instruction& in, const Operand& base, uint32_t mask, F f) {
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, base, addresses);
  for_each_lane(mask,
                [&](int lane) { f(lane, barrier_address(warp, in.space, lane, addresses[lane])); });
}

// Operands: address, count.
void init(Warp& warp, const Instruction& in, uint32_t mask) {
  for_each_barrier(warp, in, in.operand[0], mask, [&](int lane, uint64_t address) {
    Access access(warp, Space::Shared, 8, Intent::Write);
    access.note(lane, address, 0, access.find(lane, address));
    warp.block().mbarriers.init(warp, lane, address, get<uint32_t>(warp.at(in.operand[1]), lane));
  });
}

void invalidate(Warp& warp, const Instruction& in, uint32_t mask) {
  for_each_barrier(warp, in, in.operand[0], mask, [&](int lane, uint64_t address) {
    warp.block().mbarriers.invalidate(warp, lane, address);
  });
}

// Operands: state, address, count of arrivals, bytes.
void arrive(Warp& warp, const Instruction& in, uint32_t mask) {
  Mbarriers& all = warp.block().mbarriers;
  for_each_barrier(warp, in, in.operand[1], mask, [&](int lane, uint64_t address) {
    Mbarrier& barrier = all.find(warp, lane, address);
    auto count = get<uint32_t>(warp.at(in.operand[2]), lane);
    if (count < 1)
      warp.fault(FindingKind::Mbarrier, fmt::format("{} arrives 0 times", warp.thread_name(lane)),
                 "1 arrival or more");
    set<uint64_t>(warp.at(in.operand[0]), lane, uint64_t{barrier.phases} << 32 | barrier.pending);
    if (in.b & kStays && count >= barrier.pending)
      warp.fault(FindingKind::Mbarrier,
                 fmt::format("the phase would be complete: {}", all.describe(address)),
                 "arrive without .noComplete");
    if (in.b & kDrops) {
      if (count > barrier.count)
        warp.fault(FindingKind::Mbarrier,
                   fmt::format("{} arrivals are dropped: {}", count, all.describe(address)),
                   "drop no more than it was initialised for");
      barrier.count -= count;
    }
    if (in.b & kExpects) all.expect(warp, barrier, get<uint32_t>(warp.at(in.operand[3]), lane));
    all.arrive(warp, barrier, count, in.b & kRelaxed ? 0 : mask);
  });
}

// Operands: address, bytes. a: they are in.
void expect(Warp& warp, const Instruction& in, uint32_t mask) {
  Mbarriers& all = warp.block().mbarriers;
  for_each_barrier(warp, in, in.operand[0], mask, [&](int lane, uint64_t address) {
    int64_t bytes = get<uint32_t>(warp.at(in.operand[1]), lane);
    all.expect(warp, all.find(warp, lane, address), in.a ? -bytes : bytes);
  });
}

struct Awaited {
  Mbarrier* barrier;
  uint32_t parity, phases;  // that are then complete
  bool complete;
};

// What a lane waits for, by a parity or a state.
Awaited awaited(Warp& warp, const Instruction& in, int lane, Mbarrier& barrier) {
  const std::byte* which = warp.at(in.operand[2]);
  if ((in.b & kParity) == 0) {
    const auto phase = static_cast<uint32_t>(get<uint64_t>(which, lane) >> 32);
    return {&barrier, phase & 1, phase + 1, barrier.phases > phase};
  }
  const auto parity = get<uint32_t>(which, lane);
  if (parity > 1)
    warp.fault(FindingKind::Mbarrier,
               fmt::format("{} waits for parity {}", warp.thread_name(lane), parity), "0 or 1");
  return {&barrier, parity, barrier.phases, barrier.passed(parity)};
}

// The answer may be that of a moment before the phase was complete, as long as nothing but this
// wait tells the lane that it is. So who does not try again goes on without.
bool answers_late(Warp& warp, int lane, const Awaited& phase) {
  Block& block = warp.block();
  const AsyncMode mode = block.grid.options.async;
  if (block.clock || mode == AsyncMode::AtIssue || (mode == AsyncMode::Random && !block.chance()))
    return false;
  return !block.mbarriers.is_known(warp, lane, *phase.barrier, phase.phases) && warp.tries_first();
}

// Operands: p, address, state or parity.
void wait(Warp& warp, const Instruction& in, uint32_t mask) {
  Block& block = warp.block();
  Awaited phases[kLanes];
  uint32_t done = 0;
  for_each_barrier(warp, in, in.operand[1], mask, [&](int lane, uint64_t address) {
    phases[lane] = awaited(warp, in, lane, block.mbarriers.find(warp, lane, address));
    if (phases[lane].complete) done |= 1u << lane;
  });
  if (done != 0 && answers_late(warp, std::countr_zero(done), phases[std::countr_zero(done)]))
    return warp.set_predicate(in.operand[0], mask, 0);
  for (uint32_t rest = done; rest != 0;) {
    Mbarrier& barrier = *phases[std::countr_zero(rest)].barrier;
    const uint32_t same =
        lanes_where(rest, [&](int lane) { return phases[lane].barrier == &barrier; });
    block.mbarriers.see(warp, barrier, same, (in.a & kRelaxed) == 0);
    rest &= ~same;
  }
  for_each_lane(mask & ~done, [&](int lane) {
    Mbarrier& barrier = *phases[lane].barrier;
    if ((in.b & kBlocks) == 0 && ++barrier.polls % kPatience == 0)
      block.bulk.perform_awaited(barrier.address);
  });
  if (done == mask) {
    warp.forget_tries();
  } else if (in.b & kBlocks) {
    const Awaited& missed = phases[std::countr_zero(mask & ~done)];
    warp.wait_for(missed.barrier->address, missed.parity);
  }
  if (!warp.must_wait()) warp.set_predicate(in.operand[0], mask, done);
}

// Operands: count, state.
void pending_count(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* states = warp.at(in.operand[1]);
  fill<uint32_t>(warp.at(in.operand[0]), mask,
                 [=](int lane) { return static_cast<uint32_t>(get<uint64_t>(states, lane)); });
}

void take_scope(Decoder& d) {
  for (const char* word : {"acquire", "release", "cta", "cluster"}) d.take(word);
  if (d.take("relaxed")) d.now.a |= kRelaxed;
}

void take_space(Decoder& d) {
  d.now.space = d.space();
  if (d.now.space != Space::Shared && d.now.space != Space::Generic) d.unknown();
  if (d.type() != Type::B64) d.unknown();
}

void decode_arrive(Decoder& d, bool drops) {
  uint8_t what = drops ? kDrops : 0;
  if (d.take("expect_tx")) what |= kExpects;
  if (d.take("noComplete")) what |= kStays;
  take_scope(d);
  d.now.b = what | (d.now.a & kRelaxed);
  const size_t with_state = what & (kExpects | kStays) ? 3 : 2;
  take_space(d);
  // The state may be left out: only then is the first operand the address.
  const size_t first = d.syntax(0).kind == SyntaxOperand::Kind::Address ? 0 : 1;
  d.expect_operands(first + 1, first + 2);
  if (first + 1 == d.syntax_count() && with_state == 3) d.fail("an operand is missing");
  d.define(first == 0 ? SyntaxOperand{} : d.syntax(0), 8);
  d.address(first);
  const bool counted = d.syntax_count() == first + 2 && (what & kExpects) == 0;
  if (counted)
    d.use(first + 1, Type::U32);
  else
    d.use_constant(1, 4);
  if (what & kExpects) d.use(first + 1, Type::U32);
  d.now.run = arrive;
}

void decode_wait(Decoder& d, bool blocks) {
  d.now.b = static_cast<uint8_t>((d.take("parity") ? kParity : 0) | (blocks ? kBlocks : 0));
  take_scope(d);
  take_space(d);
  d.expect_operands(3, blocks ? 4 : 3);  // a hint how long to wait may follow
  d.define(0, Type::Pred);
  d.address(1);
  d.use(2, d.now.b & kParity ? Type::U32 : Type::B64);
  if (d.syntax_count() == 4) d.use(3, Type::U32);
  d.now.flow = blocks ? Flow::Wait : Flow::Next;
  d.now.run = wait;
}

void decode_mbarrier(Decoder& d) {
  if (d.take("init") || d.take("inval")) {
    const bool makes = d.statement().modifiers[0] == "init";
    take_space(d);
    d.expect_operands(makes ? 2 : 1);
    d.address(0);
    if (makes) d.use(1, Type::U32);
    d.now.run = makes ? init : invalidate;
  } else if (d.take("arrive")) {
    decode_arrive(d, false);
  } else if (d.take("arrive_drop")) {
    decode_arrive(d, true);
  } else if (d.take("expect_tx") || d.take("complete_tx")) {
    take_scope(d);
    take_space(d);
    d.expect_operands(2);
    d.address(0);
    d.use(1, Type::U32);
    d.now.a = d.statement().modifiers[0] == "complete_tx";
    d.now.run = expect;
  } else if (d.take("test_wait")) {
    decode_wait(d, false);
  } else if (d.take("try_wait")) {
    decode_wait(d, true);
  } else if (d.take("pending_count")) {
    if (d.type() != Type::B64) d.unknown();
    d.expect_operands(2);
    d.define(0, Type::U32);
    d.use(1, Type::B64);
    d.now.run = pending_count;
  } else {
    d.unknown();
  }
}

constexpr Mnemonic kMnemonics[] = {{"mbarrier", decode_mbarrier}};

}  // namespace

uint64_t barrier_address(Warp& warp, Space space, int lane, uint64_t address) {
  Access access(warp, space, 8, Intent::Write);
  access.find(lane, address);
  if (access.space() != Space::Shared)
    warp.fault(FindingKind::Mbarrier,
               fmt::format("{}: an mbarrier at {}", warp.thread_name(lane),
                           describe_address(warp.block().grid, access.space(), address)),
               "mbarriers are in shared memory");
  return address & ~kWindowMask;
}

std::span<const Mnemonic> mbarrier_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
