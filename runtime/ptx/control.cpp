// Branches, exits, barriers, fences, and instructions that only take time.
#include <fmt/format.h>

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

void decode_barrier(Decoder& d) {
  bool is_bar = d.statement().opcode == "bar";
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

void decode_fence(Decoder& d) {
  for (const char* word : {"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys",
                           "gl", "proxy", "async", "alias", "async::global", "async::shared::cta",
                           "async.global", "shared::cta", "global", "mbarrier_init"})
    d.take(word);
  d.expect_operands(0);
  d.now.run = [](Warp& warp, const Instruction&, uint32_t) {
    warp.block().clocks.fence(warp.index);
    if (warp.block().between) warp.block().between->fence();
  };
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

void decode_setmaxnreg(Decoder& d) {
  if ((!d.take("inc") && !d.take("dec")) || !d.take("sync") || !d.take("aligned") ||
      d.type() != Type::U32)
    d.unknown();
  d.integer(0);
  d.now.together = true;
  d.now.run = nothing;
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
