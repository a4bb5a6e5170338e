// The costs of a multiprocessor of compute capability 9.0, in its clocks. None is fitted to a
// kernel.
//
// Throughputs are of one of its quarters, which issues an instruction a clock: CUDA C++ Programming
// Guide, "Arithmetic Instructions". What is called measured was, on an H200, by loops of one kind
// of instruction and of two kinds side by side. Latencies are those that published microbenchmarks
// of Volta to Hopper agree on to within a few clocks; those of memory are for the L2 cache. What
// ptxas sets are stall counts in its machine code.
#include "runtime/ptx/clock.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/ptx/access.h"
#include "runtime/ptx/flight.h"

namespace kiln::ptx {
namespace {

constexpr uint64_t kFloat = 4;        // f32 fma, add, mul: latency; 32 lanes a clock
constexpr uint64_t kInteger = 6;      // integers, logic, comparisons, min, max, conversions
constexpr uint64_t kIntegerPipe = 2;  // 16 lanes a clock
constexpr uint64_t kSpecial = 22;     // ex2, rcp, …
constexpr uint64_t kSpecialPipe = 8;  // 4 lanes a clock
constexpr uint64_t kExchange = 24;    // shfl, vote, redux; one warp a clock of all four quarters
constexpr uint64_t kShared = 30;      // loads, and what mbarriers answer
constexpr uint64_t kGlobal = 500;
constexpr uint64_t kAtomic = 700;
constexpr uint64_t kArrival = 20;  // until a warp that waits for it goes on: within one quarter

// What ptxas (13.0) sets from a comparison to the branch that looks at it (as an operand its result
// is there earlier), and behind a branch.
constexpr uint64_t kGuard = 13;
constexpr uint64_t kBranch = 5;
// It makes predicates of a branch over so few instructions (CUDA C Programming Guide 4.1, "Control
// Flow Instructions").
constexpr size_t kPredicated = 7;

// While products run, their operands take the ports of the register file: ex2 alone then takes 10.7
// clocks, not 8; ex2 with its fma, add and conversion 11.2, not 8.4 (measured). Both are 4/3.
constexpr uint64_t kBusy = 4, kIdle = 3;  // thirds of a clock for a clock of those two pipes

// wgmma of n columns: n/2 clocks for 64 rows and 32 bytes of depth, which is 4096 FLOP a clock of
// f16 (measured: 32 and 64 for n = 64 and 128). Reading b from shared memory, n/4, and a, 16, may
// take longer, at 128 bytes a clock.
constexpr uint64_t kProductIssue = 19;  // measured: 18 to 20 until the warp's next instruction
constexpr uint64_t kProductFirst = 63;  // 16 in two groups took 430 to issue: 2 · 63 + 16 · 19
// Descriptors that ptxas cannot tell to be uniform (uniform.cpp) it moves there at each product:
// two R2UR. It then sets 16 clocks between products, not 12.
constexpr uint64_t kProductMoves = 4;
// Batches of 8, each awaited, by one warpgroup alone: 71 to 74 clocks an instruction, not 64
// (measured); the rest is the way from the last product to the wait's end.
constexpr uint64_t kProductEnd = 68;

constexpr uint64_t kCopyIssue = 30;  // of a bulk copy, for its thread
constexpr uint64_t kCopy = 690;      // 460 to 925 are told, by size and place
// A clock, from the L2 cache: copies alone on all multiprocessors (measured); taken to be the same
// to it.
constexpr uint64_t kCopyBytes = 47;
constexpr uint64_t kSector = 32;  // bytes of global memory; stores move whole ones

bool is_one_of(std::string_view what, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), what) != words.end();
}

bool has(const Instruction& in, std::string_view modifier) {
  const auto& all = in.source->modifiers;
  return std::find(all.begin(), all.end(), modifier) != all.end();
}

}  // namespace

Clock::Pipe Clock::pipe_of(const Instruction& in) {
  const std::string_view opcode = in.source->opcode;
  // ptxas renames registers; a constant is an operand of what uses it.
  if (is_one_of(opcode, {"mov", "cvta"}) || in.space == Space::Param || in.space == Space::Const)
    return Pipe::None;
  if (is_one_of(opcode, {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"}))
    return Pipe::Special;
  if (is_one_of(opcode, {"shfl", "vote", "redux", "match", "activemask"})) return Pipe::Exchange;
  if (opcode == "mbarrier") return Pipe::Shared;
  if (is_one_of(opcode, {"atom", "red"}))
    return in.space == Space::Shared ? Pipe::Shared : Pipe::Atomic;
  if (is_one_of(opcode, {"ld", "ldu", "ldmatrix"}))
    return in.touches == Touches::Global ? Pipe::Global : Pipe::Shared;
  if (is_one_of(opcode, {"fma", "add", "sub", "mul", "mad", "neg"}) && has(in, "f32"))
    return Pipe::Float;
  return Pipe::Integer;
}

Clock::Cost Clock::cost_of(const Instruction& in) {
  const std::string_view opcode = in.source->opcode;
  const bool begins = is_one_of(opcode, {"wgmma", "cp", "fence", "membar", "setmaxnreg"}) ||
                      (in.flow != Flow::Next && in.flow != Flow::Wait);
  const bool ordered =
      begins || is_one_of(opcode, {"st", "stmatrix", "mbarrier", "red"}) || in.flow == Flow::Wait;
  return {begins ? Pipe::None : pipe_of(in), ordered ? Order::Whole : Order::Moves,
          opcode == "wgmma" && has(in, "fence")};
}

void Clock::find_predicated(const Entry& entry) {
  for (size_t i = 0; i < entry.code.size(); ++i) {
    const Instruction& branch = entry.code[i];
    const auto target = static_cast<size_t>(branch.target);
    if (branch.flow != Flow::Branch || branch.guard < 0 || target <= i ||
        target - i - 1 > kPredicated)
      continue;
    const auto at = [&](size_t index) {
      return entry.code.begin() + static_cast<ptrdiff_t>(index);
    };
    const bool can = std::all_of(at(i + 1), at(target), [&](const Instruction& in) {
      if (in.flow == Flow::Branch) return in.target == branch.target;
      return in.flow == Flow::Next && (in.source->opcode != "wgmma" || has(in, "wait_group"));
    });
    for (size_t j = i; can && j < target; ++j)
      if (costs_[j].order == Order::Whole) costs_[j].order = Order::InTurn;
  }
}

Clock::Clock(const Entry& entry, Dim3 block, uint32_t warps)
    : code_(entry.code.data()), warps_(warps) {
  timeline_.entry = entry.name;
  timeline_.block = block;
  timeline_.warps = warps;
  for (const Instruction& in : entry.code) costs_.push_back(cost_of(in));
  find_predicated(entry);
  for (WarpClock& warp : warps_) {
    warp.ready.resize(static_cast<size_t>(entry.slots));
    warp.predicate_ready.resize(static_cast<size_t>(entry.predicates));
    warp.guard_ready.resize(static_cast<size_t>(entry.predicates));
  }
}

uint64_t Calendar::take(uint64_t from, uint64_t time) {
  auto next = taken_.upper_bound(from);
  if (next != taken_.begin()) from = std::max(from, std::prev(next)->second);
  for (; next != taken_.end() && next->first < from + time; ++next)
    from = std::max(from, next->second);
  const auto here = taken_.try_emplace(next, from, from + time);
  if (here != taken_.begin() && std::prev(here)->second == from) {
    std::prev(here)->second = from + time;
    taken_.erase(here);
  }
  return from;
}

uint64_t Clock::operands_ready(const WarpClock& warp, const Instruction& in) const {
  const auto& guards = in.flow == Flow::Branch ? warp.guard_ready : warp.predicate_ready;
  uint64_t at = in.guard >= 0 ? guards[static_cast<size_t>(in.guard)] : 0;
  for (uint32_t i = 0; i < in.operands; ++i) {
    const Operand& operand = in.operand[i];
    if (operand.slot < 0 || operand.role == OperandRole::Define) continue;
    const auto& ready = operand.bytes == 0 ? warp.predicate_ready : warp.ready;
    at = std::max(at, ready[static_cast<size_t>(operand.slot)]);
  }
  return at;
}

void Clock::set_ready(WarpClock& warp, const Instruction& in, uint64_t at, uint64_t guard_at) {
  for (uint32_t i = 0; i < in.operands; ++i) {
    const Operand& operand = in.operand[i];
    if (operand.slot < 0 || operand.role != OperandRole::Define) continue;
    auto& ready = operand.bytes == 0 ? warp.predicate_ready : warp.ready;
    ready[static_cast<size_t>(operand.slot)] = at;
    if (operand.bytes == 0) warp.guard_ready[static_cast<size_t>(operand.slot)] = guard_at;
  }
}

void Clock::issue(uint32_t index, const Instruction& in, bool runs) {
  WarpClock& warp = warps_[index];
  Part& part = parts_[index % kParts];
  const Cost cost = costs_[static_cast<size_t>(&in - code_)];
  const uint64_t operands = operands_ready(warp, in);
  if (cost.pipe == Pipe::None && cost.order == Order::Moves) {
    warp.now = warp.next;
    return set_ready(warp, in, operands, operands);
  }
  uint64_t start = cost.order == Order::Moves ? warp.free : std::max(warp.next, operands);
  if (cost.order == Order::Whole) start = std::max(start, warp.issued);
  if (cost.fence) start = std::max(start, warp.done) + kProductFirst;
  start = part.issue.take(start, 1);
  warp.now = start;
  const bool branches = in.flow == Flow::Branch && cost.order == Order::Whole;
  const uint64_t next = start + (branches ? kBranch : 1);
  warp.next = std::max(warp.next, next);
  if (cost.order != Order::InTurn) warp.free = next;
  if (warp.first_line == 0) warp.first_line = in.source->line;
  warp.last_line = in.source->line;
  uint64_t begin = std::max(start, operands);
  const auto through = [&](Calendar& thirds, uint64_t clocks) {
    begin = (thirds.take(3 * begin, clocks * (part.tensor > begin ? kBusy : kIdle)) + 2) / 3;
  };
  uint64_t latency = 0;
  switch (runs ? cost.pipe : Pipe::None) {
    case Pipe::Float: latency = kFloat; break;
    case Pipe::Special: through(part.special, kSpecialPipe), latency = kSpecial; break;
    case Pipe::Integer: through(part.integer, kIntegerPipe), latency = kInteger; break;
    case Pipe::Exchange:
    case Pipe::Shared:
      begin = exchange_.take(begin, 1);
      latency = cost.pipe == Pipe::Shared ? kShared : kExchange;
      break;
    case Pipe::Global: latency = kGlobal; break;
    case Pipe::Atomic: latency = kAtomic; break;
    default: break;
  }
  warp.issued = std::max(warp.issued, begin);
  if (latency < kGlobal) warp.done = std::max(warp.done, begin + latency);
  if (runs) set_ready(warp, in, begin + latency, begin + std::max(latency, kGuard));
}

void Clock::add(Interval interval, const Instruction& in) {
  interval.first_line = interval.last_line = in.source->line;
  timeline_.intervals.push_back(interval);
}

void Clock::end_busy(uint32_t index) {
  WarpClock& warp = warps_[index];
  if (warp.first_line != 0 && warp.next > warp.busy_since)
    timeline_.intervals.push_back({Interval::Kind::Issue, index, warp.busy_since, warp.next, 0, 0,
                                   warp.first_line, warp.last_line});
  warp.first_line = 0;
}

void Clock::wait(uint32_t index, uint64_t until, Interval::Kind what, const Instruction& in,
                 uint64_t mbarrier) {
  WarpClock& warp = warps_[index];
  if (until <= warp.next) return;
  end_busy(index);
  add({what, index, warp.next, until, mbarrier}, in);
  warp.next = warp.busy_since = until;
  if (costs_[static_cast<size_t>(&in - code_)].order == Order::Whole) warp.free = until;
}

uint64_t Clock::product(uint32_t index, const Instruction& in, int columns, bool a_in_registers) {
  WarpClock& warp = warps_[index];
  uint64_t& free = parts_[index % kParts].tensor;
  const auto n = static_cast<uint64_t>(columns);
  const uint64_t begin = std::max(warp.now, free);
  free = begin + std::max(n / 2, n / 4 + (a_in_registers ? 0 : 16));
  warp.next = warp.free = warp.now + kProductIssue + (in.uniform ? 0 : kProductMoves);
  timeline_.tensor_clocks += free - begin;
  add({Interval::Kind::Product, index, begin, free}, in);
  return free + kProductEnd;
}

uint64_t Clock::copy(uint32_t index, const Instruction& in, bool load, uint64_t mbarrier,
                     uint64_t bytes) {
  WarpClock& warp = warps_[index];
  const uint64_t end = (load ? in_ : out_).take(warp.now, bytes) + kCopy;
  warp.next = warp.now + kCopyIssue;
  add({load ? Interval::Kind::Load : Interval::Kind::Store, index, warp.now, end, mbarrier, bytes},
      in);
  return end;
}

uint64_t Clock::Path::take(uint64_t from, uint64_t bytes) {
  free = std::max(from * kCopyBytes, free) + bytes;
  return (free + kCopyBytes - 1) / kCopyBytes;
}

void Clock::store(uint32_t index, uint64_t sectors) {
  WarpClock& warp = warps_[index];
  warp.next = std::max(warp.next, out_.free / kCopyBytes);
  out_.take(warp.now, sectors * kSector);
}

void Clock::results(uint32_t index, const Instruction& in, uint64_t at) {
  set_ready(warps_[index], in, at, at);
}

uint64_t Clock::small_copy(uint32_t warp) const {
  return warps_[warp].now + kGlobal;
}

uint64_t Clock::arrival(uint32_t warp) const {
  return warps_[warp].now + kArrival;
}

Timeline Clock::take() {
  for (uint32_t i = 0; i < warps_.size(); ++i) {
    end_busy(i);
    timeline_.clocks = std::max(timeline_.clocks, warps_[i].next);
  }
  std::stable_sort(timeline_.intervals.begin(), timeline_.intervals.end(),
                   [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return std::exchange(timeline_, {});
}

}  // namespace kiln::ptx
