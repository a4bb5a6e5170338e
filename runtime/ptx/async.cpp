// cp.async and its groups.
#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"

namespace kiln::ptx {
namespace {

void copy_now(Warp& warp, const PendingCopy& copy) {
  std::byte* to = warp.block().shared.data() + (copy.to - kSharedBase);
  if (copy.from_bytes > 0) std::memcpy(to, copy.from, copy.from_bytes);
  std::memset(to + copy.from_bytes, 0, static_cast<size_t>(copy.bytes - copy.from_bytes));
}

// Whether what is begun is done at once.
bool is_now(Block& block) {
  const AsyncMode mode = block.grid.options.async;
  return mode == AsyncMode::AtIssue || (mode == AsyncMode::Random && block.chance());
}

// Operands: the bases of the two addresses, perhaps the source's size or a predicate to ignore it.
// Instruction::immediate is the offset of the source, target that of the destination; a: what the
// third operand is.
enum class Third : uint8_t { None, Size, Ignore };

void copy(Warp& warp, const Instruction& in, uint32_t mask) {
  uint64_t to[kLanes], from[kLanes];
  uint32_t bytes = in.count;
  auto third = static_cast<Third>(in.a);
  lane_addresses(warp, in, in.operand[1], from);
  Instruction destination = in;
  destination.immediate = in.target;
  lane_addresses(warp, destination, in.operand[0], to);
  for (uint64_t& address : to) address &= ~kWindowMask;
  Access write(warp, Space::Shared, bytes, Intent::Write);
  uint32_t reads = 0;
  for_each_lane(mask, [&](int lane) {
    uint32_t size = bytes;
    if (third == Third::Size) size = std::min(bytes, get<uint32_t>(warp.at(in.operand[2]), lane));
    if (third == Third::Ignore && (warp.predicate(in.operand[2]) >> lane & 1)) size = 0;
    const std::byte* source = nullptr;
    if (size > 0) {
      // Aligned to the whole copy, and there for what is read of it.
      Access read(warp, Space::Global, size, Intent::Read, bytes);
      source = read.find(lane, from[lane]);
      read.note(lane, from[lane], 0, source);
      reads |= 1u << lane;
    }
    std::byte* place = write.find(lane, to[lane]);
    write.note(lane, to[lane], 0, place, nullptr, true);
    PendingCopy pending{to[lane],
                        source,
                        static_cast<uint8_t>(bytes),
                        static_cast<uint8_t>(size),
                        static_cast<uint8_t>(lane),
                        is_now(warp.block()),
                        warp.groups[lane],
                        warp.position(),
                        warp.block().clock ? warp.block().clock->small_copy(warp.index) : 0};
    if (pending.done) copy_now(warp, pending);
    warp.pending.push_back(pending);
  });
  count_shared(warp.profile(), to, mask, bytes);
  count_global(warp.profile(), from, reads, bytes);
}

// Lanes' copies of groups before `end` are done.
template <class End>
void complete(Warp& warp, uint32_t mask, End end) {
  Block& block = warp.block();
  const Options& options = block.grid.options;
  std::erase_if(warp.pending, [&](const PendingCopy& copy) {
    if ((mask >> copy.lane & 1) == 0 || copy.group >= end(copy.lane)) return false;
    ++warp.profile().completed;
    if (!copy.done) copy_now(warp, copy);
    warp.wait_until(copy.due, Interval::Kind::WaitCopies);
    if (!options.check_races && !options.check_uninitialized) return true;
    block.shadow.visit(copy.to - kSharedBase, copy.bytes, [&](Cell& cell) {
      if (cell.async && cell.write_agent == warp.index && cell.write_lane == copy.lane &&
          cell.write_instruction == copy.instruction) {
        cell.async = false;  // as if the lane had written it now
        cell.write_clock = block.clocks.now(warp.index);
      }
      return Clash{};
    });
    return true;
  });
}

void commit_group(Warp& warp, const Instruction&, uint32_t mask) {
  for_each_lane(mask, [&](int lane) { ++warp.groups[lane]; });
}

// All but the last `immediate` committed groups.
void wait_group(Warp& warp, const Instruction& in, uint32_t mask) {
  auto open = static_cast<uint64_t>(in.immediate);
  complete(warp, mask, [&](int lane) {
    uint64_t groups = warp.groups[lane];
    return groups > open ? groups - open : 0;
  });
}

void wait_all(Warp& warp, const Instruction&, uint32_t mask) {
  commit_group(warp, Instruction{}, mask);
  complete(warp, mask, [&](int lane) { return uint64_t{warp.groups[lane]}; });
}

void decode_copy(Decoder& d) {
  bool all_levels = d.take("ca");
  if (!all_levels && !d.take("cg")) d.unknown();
  if ((!d.take("shared") && !d.take("shared::cta")) || !d.take("global")) d.unknown();
  d.take_prefix("L2::");
  d.expect_operands(3, 5);
  uint64_t bytes = d.integer(2);
  if (bytes != 16 && (!all_levels || (bytes != 4 && bytes != 8)))
    d.fail(all_levels ? "copies 4, 8 or 16 bytes" : "copies 16 bytes");
  d.now.count = static_cast<uint8_t>(bytes);
  d.now.touches = Touches::Global;
  d.now.space = Space::Shared;
  d.address(0);
  if (d.now.immediate != static_cast<int32_t>(d.now.immediate)) d.fail("an offset of 32 bits");
  d.now.target = static_cast<int32_t>(d.now.immediate);
  d.now.space = Space::Global;
  d.address(1);
  d.now.run = copy;
  if (d.syntax_count() < 4) return;
  const SyntaxOperand& third = d.syntax(3);
  if (d.is_predicate(third)) {
    d.use(3, Type::Pred);
    d.now.a = static_cast<uint8_t>(Third::Ignore);
  } else if (!d.is_wide(third)) {  // else a cache policy
    d.use(3, Type::U32);
    d.now.a = static_cast<uint8_t>(Third::Size);
  }
}

// cp.async.mbarrier.arrive: operand: the address. a: noinc.
void arrive(Warp& warp, const Instruction& in, uint32_t mask) {
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, in.operand[0], addresses);
  Block& block = warp.block();
  for_each_lane(mask, [&](int lane) {
    Mbarrier& barrier =
        block.mbarriers.find(warp, lane, barrier_address(warp, in.space, lane, addresses[lane]));
    if (!in.a) ++barrier.pending;
    BulkCopy copy;
    copy.way = BulkCopy::Way::Arrive;
    copy.mbarrier = barrier.address;
    copy.thread = warp.thread(lane);
    copy.position = warp.position();
    block.bulk.begin(std::move(copy));
  });
}

void decode_arrive(Decoder& d) {
  if (!d.take("arrive")) d.unknown();
  d.now.a = d.take("noinc");
  d.now.space = d.space();
  if (d.type() != Type::B64) d.unknown();
  d.expect_operands(1);
  d.address(0);
  d.now.run = arrive;
}

void decode_cp(Decoder& d) {
  const bool reduces = d.take("reduce");
  if (!d.take("async")) d.unknown();
  if (d.take("bulk")) return decode_bulk(d, reduces);
  if (reduces) d.unknown();
  if (d.take("mbarrier")) return decode_arrive(d);
  if (d.take("commit_group")) {
    d.expect_operands(0);
    d.now.run = commit_group;
  } else if (d.take("wait_group")) {
    d.expect_operands(1);
    d.now.immediate = static_cast<int64_t>(d.integer(0) & 0xffffffff);
    d.now.run = wait_group;
  } else if (d.take("wait_all")) {
    d.expect_operands(0);
    d.now.run = wait_all;
  } else {
    decode_copy(d);
  }
}

constexpr Mnemonic kMnemonics[] = {{"cp", decode_cp}};

}  // namespace

void complete_copies(Warp& warp, int lane) {
  complete(warp, 1u << lane, [](int) { return ~uint64_t{0}; });
}

std::span<const Mnemonic> async_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
