// Branches, exits, barriers, fences, and instructions that only take time.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

void nothing(Warp&, const Instruction&, uint32_t) {}

void decode_bra(Decoder& d) {
  d.take("uni");
  d.expect_operands(1);
  if (d.syntax(0).kind != SyntaxOperand::Kind::Label || !d.syntax(0).parts.empty())
    d.fail("the operand must be a label");
  d.now.flow = Flow::Branch;
  d.now.target = d.syntax(0).index;
}

void decode_brx(Decoder& d) {
  if (!d.take("idx")) d.unknown();
  d.take("uni");
  d.expect_operands(2);
  const SyntaxOperand& table = d.syntax(1);
  if (table.kind != SyntaxOperand::Kind::Label || table.parts.empty())
    d.fail("the second operand must be a list of labels");
  d.use(0, Type::U32);
  std::vector<int32_t> targets;
  for (const SyntaxOperand& label : table.parts) targets.push_back(label.index);
  d.now.flow = Flow::BranchTable;
  d.now.target = static_cast<int32_t>(d.entry().tables.size());
  d.entry().tables.push_back(std::move(targets));
}

void decode_exit(Decoder& d) {
  d.take("uni");
  d.expect_operands(0);
  d.now.flow = Flow::Exit;
}

void trap(Warp& warp, const Instruction&, uint32_t mask) {
  warp.fault(FindingKind::Trap, fmt::format("{} traps", warp.thread_name(std::countr_zero(mask))),
             "the kernel asks to be ended: look for the condition that leads here");
}

void decode_trap(Decoder& d) {
  d.expect_operands(0);
  d.now.run = trap;
}

// Operands: the barrier, the number of threads (0: all), then of a reduction the predicate and,
// first of all, the result. a: what it does; count: the index of the barrier's operand.
enum class Does : uint8_t { Sync, Arrive, Popcount, And, Or };

void barrier(Warp& warp, const Instruction& in, uint32_t mask) {
  int first = std::countr_zero(mask);
  uint32_t id = lane32(warp.at(in.operand[in.count]), first);
  uint32_t threads = lane32(warp.at(in.operand[in.count + 1]), first);
  if (id >= kBarriers)
    warp.fault(FindingKind::Deadlock, fmt::format("there is no barrier {}", id),
               "barriers are 0 to 15");
  if (threads % kLanes != 0)
    warp.fault(FindingKind::Deadlock, fmt::format("a barrier of {} threads", threads),
               "count whole warps: a multiple of 32");
  auto does = static_cast<Does>(in.a);
  uint32_t votes = does >= Does::Popcount ? warp.predicate(in.operand[in.count + 2]) & mask : 0;
  warp.block().arrive(warp, static_cast<int>(id), mask, threads, does != Does::Arrive, votes);
}

// Of a cluster of one block: what arrives and what waits is one barrier, which no other uses.
void decode_cluster_barrier(Decoder& d) {
  const bool arrives = d.take("arrive");
  if (!arrives && !d.take("wait")) d.unknown();
  for (const char* word : {"acquire", "release", "relaxed"}) d.take(word);
  d.now.together = d.take("aligned");
  d.expect_operands(0);
  d.now.a = arrives;
  d.now.flow = Flow::Wait;
  d.now.run = [](Warp& warp, const Instruction& in, uint32_t mask) {
    in.a ? warp.block().arrive_cluster(warp, mask) : warp.block().wait_cluster(warp, mask);
  };
}

void decode_barrier(Decoder& d) {
  bool is_bar = d.statement().opcode == "bar";
  if (!is_bar && d.take("cluster")) return decode_cluster_barrier(d);
  d.take("cta");
  bool aligned = d.take("aligned") || is_bar;
  if (d.take("warp")) {
    if (!is_bar || !d.take("sync")) d.unknown();
    d.expect_operands(1);
    d.use(0, Type::B32);
    d.now.together = true;
    d.now.members = 0;
    d.now.run = [](Warp& warp, const Instruction&, uint32_t) {
      warp.block().clocks.lanes_meet(warp.index);
    };
    return;
  }
  Does does = Does::Sync;
  if (d.take("arrive")) {
    does = Does::Arrive;
  } else if (d.take("red")) {
    std::string_view op = d.take_one({"popc", "and", "or"});
    if (op.empty()) d.unknown();
    does = op == "popc" ? Does::Popcount : op == "and" ? Does::And : Does::Or;
    if (d.type() != (does == Does::Popcount ? Type::U32 : Type::Pred)) d.unknown();
  } else if (!d.take("sync")) {
    d.unknown();
  }
  bool reduces = does >= Does::Popcount;
  size_t first = reduces, last = d.syntax_count() - (reduces ? 1 : 0);
  d.expect_operands(1 + 2 * reduces, 2 + 2 * reduces);
  if (reduces) d.define(0, does == Does::Popcount ? Type::U32 : Type::Pred);
  d.use(first, Type::B32);
  if (last > first + 1)
    d.use(first + 1, Type::B32);
  else if (does == Does::Arrive)
    d.fail("the number of threads is missing");
  else
    d.use_constant(0, 4);
  if (reduces) d.use(last, Type::Pred);
  d.now.a = static_cast<uint8_t>(does);
  d.now.count = static_cast<uint8_t>(first);
  d.now.together = aligned;
  d.now.flow = Flow::Barrier;
  d.now.run = barrier;
}

// a: which. A fence of proxies orders nothing else.
constexpr uint8_t kMemory = 1, kAsyncProxy = 2, kMbarriers = 4;

void fence(Warp& warp, const Instruction& in, uint32_t mask) {
  Block& block = warp.block();
  if (in.a & kMemory) {
    block.clocks.fence(warp.index);
    if (block.between) block.between->fence();
  }
  if (in.a & kAsyncProxy) block.clocks.fence_proxy(warp.lanes(mask));
  if (in.a & (kAsyncProxy | kMbarriers))
    block.mbarriers.publish(warp.index, std::countr_zero(mask));
}

void decode_fence(Decoder& d) {
  d.now.a = kMemory;
  if (d.take("mbarrier_init")) d.now.a = kMemory | kMbarriers;
  if (d.take("proxy")) {
    const std::string_view proxy =
        d.take_one({"async", "async.global", "async::generic", "async.shared::cta", "async::global",
                    "alias", "tensormap::generic"});
    if (proxy.empty()) d.unknown();
    d.now.a = proxy.starts_with("async") ? kAsyncProxy : 0;
  }
  for (const char* word : {"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys",
                           "gl", "shared::cta", "shared::cluster", "global",
                           "sync_restrict::shared::cta", "sync_restrict::shared::cluster"})
    d.take(word);
  d.expect_operands(0, d.now.a == 0 ? 2 : 0);  // a tensor map and its size
  d.now.run = fence;
}

void decode_nanosleep(Decoder& d) {
  if (d.type() != Type::U32) d.unknown();
  d.expect_operands(1);
  d.use(0, Type::U32);
  d.now.flow = Flow::Yield;
}

// The grid before it has ended: there is none at the same time.
void decode_grid_dependency(Decoder& d) {
  if (!d.take("wait") && !d.take("launch_dependents")) d.unknown();
  d.now.run = nothing;
}

// Registers of a lane after it. A warp's are given back at once, and asked for until they are free.
void setmaxnreg(Warp& warp, const Instruction& in, uint32_t) {
  Block& block = warp.block();
  const auto wanted = static_cast<uint64_t>(in.immediate);
  if (warp.registers == 0) return;  // the launch does not say how many there are: it is ignored
  const bool more = in.a != 0;
  if (more ? wanted < warp.registers : wanted > warp.registers)
    warp.fault(FindingKind::RegisterBudget,
               fmt::format("warp {} has {} registers a thread and asks for {}", warp.index,
                           warp.registers, wanted),
               more ? ".inc is to as many or more" : ".dec is to as many or fewer");
  if (more && (wanted - warp.registers) * kLanes > block.free_registers)
    return warp.wait_for(SplitState::ForRegisters);
  block.free_registers += warp.registers * kLanes;
  block.free_registers -= wanted * kLanes;
  warp.registers = wanted;
  block.note_event();
  if (!more) block.wake(SplitState::ForRegisters);
}

void decode_setmaxnreg(Decoder& d) {
  d.now.a = d.take("inc");
  if ((!d.now.a && !d.take("dec")) || !d.take("sync") || !d.take("aligned") ||
      d.type() != Type::U32)
    d.unknown();
  d.expect_operands(1);
  const uint64_t registers = d.integer(0);
  if (registers < 24 || registers > 256 || registers % 8 != 0)
    d.fail(fmt::format("{} registers, expected a multiple of 8 from 24 to 256", registers));
  d.now.immediate = static_cast<int64_t>(registers);
  d.now.together = true;
  d.now.flow = Flow::Wait;
  d.now.run = setmaxnreg;
}

void decode_nothing(Decoder& d) {
  d.expect_operands(0, 1);
  d.now.run = nothing;
}

constexpr Mnemonic kMnemonics[] = {
    {"bra", decode_bra},
    {"brx", decode_brx},
    {"exit", decode_exit},
    {"ret", decode_exit},
    {"trap", decode_trap},
    {"bar", decode_barrier},
    {"barrier", decode_barrier},
    {"fence", decode_fence},
    {"membar", decode_fence},
    {"nanosleep", decode_nanosleep},
    {"brkpt", decode_nothing},
    {"pmevent", decode_nothing},
    {"griddepcontrol", decode_grid_dependency},
    {"setmaxnreg", decode_setmaxnreg},
};

}  // namespace

std::span<const Mnemonic> control_mnemonics() {
  return kMnemonics;
}

uint64_t launch_registers(const Grid& grid) {
  const Entry& entry = grid.entry;
  const bool known = entry.most_threads != 0 || entry.required_threads[0] != 0;
  if (!known) return 0;  // ptxas ignores setmaxnreg
  if (entry.most_registers != 0) return (entry.most_registers + 7) / 8 * 8;
  constexpr uint64_t kFile = 65536, kMost = 256, kUnit = 8;
  const uint64_t* required = entry.required_threads;
  const uint64_t threads =
      required[0] != 0 ? required[0] * required[1] * required[2] : entry.most_threads;
  const uint64_t warps = (threads + kLanes - 1) / kLanes;
  return std::min(kFile / (warps * kLanes * entry.least_blocks) / kUnit * kUnit, kMost);
}

// The result of bar.red, for lanes that waited: the split stands behind the instruction.
void Block::finish_reduction(Warp& warp, const Split& split, const Barrier& barrier) {
  const Instruction& in = warp.block().grid.entry.code[static_cast<size_t>(split.at - 1)];
  switch (static_cast<Does>(in.a)) {
    case Does::Popcount:
      fill<uint32_t>(warp.at(in.operand[0]), split.lanes, [&](int) { return barrier.votes; });
      break;
    case Does::And:
      warp.set_predicate(in.operand[0], split.lanes,
                         barrier.votes == barrier.voters ? kAllLanes : 0);
      break;
    case Does::Or:
      warp.set_predicate(in.operand[0], split.lanes, barrier.votes != 0 ? kAllLanes : 0);
      break;
    default: break;
  }
}

}  // namespace kiln::ptx
