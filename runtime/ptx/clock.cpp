// Costs of a Hopper multiprocessor in its clocks. Throughputs: CUDA C++ Programming Guide,
// "Arithmetic Instructions", compute capability 9.0, for a warp in a quarter of the multiprocessor.
// Latencies are what microbenchmarks of Volta to Hopper agree on to within a few clocks; those of
// memory are for the L2 cache.
#include "runtime/ptx/clock.h"

#include <algorithm>
#include <utility>

#include "runtime/ptx/flight.h"

namespace kiln::ptx {
namespace {

constexpr uint64_t kArithmetic = 4;     // fma, add, logic
constexpr uint64_t kSpecial = 22;       // ex2, rcp, …: 4 lanes a clock
constexpr uint64_t kSpecialPipe = 8;
constexpr uint64_t kConvert = 6;        // cvt, min and max of floats: 16 lanes a clock
constexpr uint64_t kConvertPipe = 2;
constexpr uint64_t kExchange = 24;      // shfl, vote, redux; one warp a clock of all four parts
constexpr uint64_t kShared = 30;        // loads
constexpr uint64_t kGlobal = 500;
constexpr uint64_t kAtomic = 700;
constexpr uint64_t kArrival = 20;       // until another warp goes on
constexpr uint64_t kProductIssue = 18;  // of a wgmma: its warp's next instruction, measured on H200
constexpr uint64_t kProductEnd = 30;    // from the last product of a group to the wait's end
constexpr uint64_t kCopyIssue = 30;     // of a bulk copy
constexpr uint64_t kCopy = 600;
constexpr uint64_t kCopyBytes = 40;     // a clock, from the L2 cache to one of all multiprocessors

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
  if (is_one_of(opcode, {"mov", "cvta", "bar.warp"})) return Pipe::None;  // ptxas renames registers
  if (is_one_of(opcode, {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"}))
    return Pipe::Special;
  if (opcode == "cvt") return Pipe::Convert;
  if (is_one_of(opcode, {"min", "max"}) && !has(in, "s32") && !has(in, "u32")) return Pipe::Convert;
  if (is_one_of(opcode, {"shfl", "vote", "redux", "match", "activemask"})) return Pipe::Exchange;
  if (is_one_of(opcode, {"atom", "red"}))
    return in.space == Space::Shared ? Pipe::Shared : Pipe::Atomic;
  if (is_one_of(opcode, {"ld", "ldu", "ldmatrix"}))
    return in.touches == Touches::Global ? Pipe::Global : Pipe::Shared;
  return Pipe::Arithmetic;
}

Clock::Cost Clock::cost_of(const Instruction& in) {
  const bool stays = in.flow != Flow::Next ||
                     is_one_of(in.source->opcode, {"st", "stmatrix", "wgmma", "cp", "mbarrier",
                                                   "fence", "setmaxnreg", "red", "membar"});
  return {pipe_of(in), !stays};
}

Clock::Clock(const Entry& entry, uint32_t warps) : code_(entry.code.data()), warps_(warps) {
  for (const Instruction& in : entry.code) costs_.push_back(cost_of(in));
  for (WarpClock& warp : warps_) {
    warp.ready.resize(static_cast<size_t>(entry.slots));
    warp.predicate_ready.resize(static_cast<size_t>(entry.predicates));
  }
}

uint64_t Clock::operands_ready(const WarpClock& warp, const Instruction& in) const {
  uint64_t at = in.guard >= 0 ? warp.predicate_ready[static_cast<size_t>(in.guard)] : 0;
  for (uint32_t i = 0; i < in.operands; ++i) {
    const Operand& operand = in.operand[i];
    if (operand.slot < 0 || operand.role == OperandRole::Define) continue;
    const auto& ready = operand.bytes == 0 ? warp.predicate_ready : warp.ready;
    at = std::max(at, ready[static_cast<size_t>(operand.slot)]);
  }
  return at;
}

void Clock::set_ready(WarpClock& warp, const Instruction& in, uint64_t at) {
  for (uint32_t i = 0; i < in.operands; ++i) {
    const Operand& operand = in.operand[i];
    if (operand.slot < 0 || operand.role != OperandRole::Define) continue;
    auto& ready = operand.bytes == 0 ? warp.predicate_ready : warp.ready;
    ready[static_cast<size_t>(operand.slot)] = at;
  }
}

void Clock::issue(uint32_t index, const Instruction& in) {
  WarpClock& warp = warps_[index];
  Part& part = parts_[index % kParts];
  const auto [pipe, goes_on] = costs_[static_cast<size_t>(&in - code_)];
  const uint64_t operands = operands_ready(warp, in);
  if (pipe == Pipe::None && goes_on) {
    warp.now = warp.next;
    return set_ready(warp, in, operands);
  }
  uint64_t start = std::max(warp.next, part.issue);
  if (!goes_on) start = std::max(start, operands);
  part.issue = start + 1;
  warp.now = start;
  warp.next = start + 1;
  if (warp.first_line == 0) warp.first_line = in.source->line;
  warp.last_line = in.source->line;
  const uint64_t from = std::max(start, operands);
  const auto through = [&](uint64_t& free, uint64_t clocks) {
    const uint64_t begin = std::max(from, free);
    free = begin + clocks;
    return begin;
  };
  switch (pipe) {
    case Pipe::Special: return set_ready(warp, in, through(part.special, kSpecialPipe) + kSpecial);
    case Pipe::Convert: return set_ready(warp, in, through(part.convert, kConvertPipe) + kConvert);
    case Pipe::Exchange: return set_ready(warp, in, through(exchange_, 1) + kExchange);
    case Pipe::Shared: return set_ready(warp, in, through(exchange_, 1) + kShared);
    case Pipe::Global: return set_ready(warp, in, from + kGlobal);
    case Pipe::Atomic: return set_ready(warp, in, from + kAtomic);
    default: return set_ready(warp, in, from + kArithmetic);
  }
}

void Clock::end_busy(uint32_t index) {
  WarpClock& warp = warps_[index];
  if (warp.first_line != 0 && warp.next > warp.busy_since)
    timeline_.intervals.push_back({Interval::Kind::Issues, index, warp.busy_since, warp.next,
                                   warp.first_line, warp.last_line});
  warp.first_line = 0;
}

void Clock::wait(uint32_t index, uint64_t until, Interval::Kind what, const Instruction& in) {
  WarpClock& warp = warps_[index];
  if (until <= warp.next) return;
  end_busy(index);
  timeline_.intervals.push_back(
      {what, index, warp.next, until, in.source->line, in.source->line});
  warp.next = warp.busy_since = until;
}

uint64_t Clock::product(uint32_t index, const Instruction& in, int columns) {
  WarpClock& warp = warps_[index];
  uint64_t& free = parts_[index % kParts].tensor;
  const uint64_t begin = std::max(warp.now, free);
  free = begin + static_cast<uint64_t>(columns) / 2;  // 64 rows and 32 bytes of depth
  warp.next = warp.now + kProductIssue;
  timeline_.tensor_clocks += free - begin;
  auto& all = timeline_.intervals;
  all.push_back({Interval::Kind::Product, index, begin, free, in.source->line, in.source->line});
  return free + kProductEnd;
}

uint64_t Clock::copy(uint32_t index, const Instruction& in, uint64_t bytes) {
  WarpClock& warp = warps_[index];
  const uint64_t begin = std::max(warp.now, copies_);
  copies_ = begin + bytes / kCopyBytes;
  warp.next = warp.now + kCopyIssue;
  const uint64_t end = copies_ + kCopy;
  timeline_.intervals.push_back(
      {Interval::Kind::Copy, index, warp.now, end, in.source->line, in.source->line});
  return end;
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
  timeline_.warps = static_cast<uint32_t>(warps_.size());
  std::stable_sort(timeline_.intervals.begin(), timeline_.intervals.end(),
                   [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  return std::exchange(timeline_, {});
}

}  // namespace kiln::ptx
