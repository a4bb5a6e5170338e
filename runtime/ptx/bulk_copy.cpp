// cp.async.bulk, cp.reduce.async.bulk, their tensor forms and groups.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"
#include "runtime/ptx/tensor_map.h"

namespace kiln::ptx {
namespace {

constexpr uint32_t kUnit = 16;  // bytes that a swizzle moves as one

// Of Instruction::a: where to. count: the coordinates of a tensor copy, or 0. b: the reduction;
// immediate: the type, of one without a map. tables: offsets of the addresses.
enum class Way : uint8_t { ToShared, ToGlobal, Prefetch };

// Notes what a copy does, as by an agent that has not done it yet.
class Noting {
 public:
  Noting(Warp& warp, int lane, AgentId agent, uint32_t clock)
      : warp_(warp), lane_(lane), agent_(agent), clock_(clock) {}
  std::byte* operator()(Space space, Intent intent, uint64_t address, uint32_t bytes,
                        uint8_t strength = 0) const {
    Access access(warp_, space, bytes, intent, 1);
    std::byte* place = access.find(lane_, address);
    access.by(agent_, clock_);
    access.note(lane_, address, strength, place);
    return place;
  }

 private:
  Warp& warp_;
  int lane_;
  AgentId agent_;
  uint32_t clock_;
};

uint64_t shared_place(Warp& warp, Space space, int lane, uint64_t address, uint32_t bytes,
                      uint32_t alignment, Intent intent) {
  Access access(warp, space, bytes, intent, alignment);
  access.find(lane, address);
  if (access.space() != Space::Shared)
    warp.fault(FindingKind::OutOfBounds,
               fmt::format("{}: a bulk copy's side in shared memory is {}", warp.thread_name(lane),
                           describe_address(warp.block().grid, access.space(), address)),
               "give it an address of shared memory");
  return address & ~kWindowMask;
}

// One lane's copy: its pieces, in the order of shared memory.
class Maker {
 public:
  Maker(Warp& warp, int lane, BulkCopy& copy, const Noting& shared, const Noting& global)
      : warp_(warp), lane_(lane), copy_(copy), shared_(shared), global_(global) {}

  // A run of bytes; `outside`: of a tensor.
  void run(uint64_t shared, uint64_t global, uint32_t bytes, bool outside, uint32_t swizzle) {
    const bool loads = copy_.way == BulkCopy::Way::Load;
    if (bytes == 0 || (outside && !loads)) return;
    std::byte* place = nullptr;
    if (!outside) place = touch_global(global, bytes);
    const uint32_t mask = swizzle / kUnit - (swizzle > 0);
    while (bytes > 0) {
      const auto part =
          swizzle == 0 ? bytes : std::min(bytes, kUnit - static_cast<uint32_t>(shared % kUnit));
      const uint64_t at = shared ^ (shared >> 7 & mask) << 4;
      copy_.pieces.push_back({at, place, part});
      shared_(Space::Shared, loads ? Intent::Write : Intent::Read, at, part);
      shared += part;
      bytes -= part;
      if (place) place += part;
    }
  }

  void tensor(const TensorMap& map, const int32_t* at, uint64_t shared) {
    const auto size = static_cast<uint32_t>(bytes_of(map.type));
    const uint32_t row = map.box[0] * size;
    uint32_t index[5] = {};
    for (;;) {
      bool inside = true;
      uint64_t global = map.address;
      for (int axis = 1; axis < map.rank; ++axis) {
        const int64_t place = int64_t{at[axis]} + int64_t{index[axis]} * map.steps[axis];
        inside &= place >= 0 && place < static_cast<int64_t>(map.extents[axis]);
        global += static_cast<uint64_t>(place) * map.strides[axis];
      }
      const auto extent = static_cast<int64_t>(map.extents[0]);
      const int64_t box = map.box[0], from = at[0];
      const int64_t first = inside ? std::clamp<int64_t>(-from, 0, box) : box;
      const int64_t last = inside ? std::clamp<int64_t>(extent - from, first, box) : box;
      const auto before = static_cast<uint32_t>(first) * size;
      const auto within = static_cast<uint32_t>(last - first) * size;
      run(shared, 0, before, true, map.swizzle);
      run(shared + before, global + static_cast<uint64_t>((from + first) * size), within, false,
          map.swizzle);
      run(shared + before + within, 0, row - before - within, true, map.swizzle);
      shared += row;
      int axis = 1;
      while (axis < map.rank && ++index[axis] == map.boxed(axis)) index[axis++] = 0;
      if (axis >= map.rank) return;
    }
  }

 private:
  std::byte* touch_global(uint64_t address, uint32_t bytes) {
    if (copy_.way != BulkCopy::Way::Load)
      return global_(Space::Global, Intent::Write, address, bytes,
                     copy_.reduction == Reduction::None ? uint8_t{0} : kStrong);
    Access access(warp_, Space::Global, bytes, Intent::Read, 1);
    std::byte* place = access.find(lane_, address);
    if (warp_.recent->writable) global_(Space::Global, Intent::Read, address, bytes);
    return place;
  }

  Warp& warp_;
  int lane_;
  BulkCopy& copy_;
  const Noting &shared_, &global_;
};

TensorMap map_at(Warp& warp, int lane, uint64_t address) {
  Access access(warp, Space::Generic, kTensorMapBytes, Intent::Read, 64);
  const std::byte* bytes = access.find(lane, address);
  if (auto map = decode_tensor_map(bytes)) return *map;
  warp.fault(FindingKind::OutOfBounds,
             fmt::format("{}: there is no tensor map at {}", warp.thread_name(lane),
                         describe_address(warp.block().grid, access.space(), address)),
             "pass the map that the host made as a parameter, or its address in global memory");
}

// Operands: the address in shared memory, the other one (or the map's), then the mbarrier of a
// load, then the coordinates or the number of bytes.
void copy_lane(Warp& warp, const Instruction& in, int lane, const uint64_t* addresses) {
  Block& block = warp.block();
  const auto way = static_cast<Way>(in.a);
  const bool loads = way == Way::ToShared;
  const uint32_t first = loads ? 3 : 2;
  const auto number = [&](uint32_t i) {
    return get<uint32_t>(warp.at(in.operand[first + i]), lane);
  };
  TensorMap map;
  int32_t at[5] = {};
  uint32_t bytes = 0;
  if (in.count > 0) {
    map = map_at(warp, lane, addresses[1]);
    if (map.rank != in.count)
      warp.fault(FindingKind::OutOfBounds,
                 fmt::format("{}: {} coordinates, and the tensor map has {} axes",
                             warp.thread_name(lane), in.count, map.rank),
                 "make the map for as many axes as the copy names");
    bytes = static_cast<uint32_t>(bytes_of(map.type));
    for (int axis = 0; axis < map.rank; ++axis) {
      at[axis] = static_cast<int32_t>(number(static_cast<uint32_t>(axis)));
      bytes *= map.boxed(axis);
    }
    if (map.swizzle > 0 && map.box[0] * static_cast<uint32_t>(bytes_of(map.type)) != map.swizzle)
      warp.fault(FindingKind::Misaligned,
                 fmt::format("rows of {} bytes with a swizzle of {} are not emulated",
                             map.box[0] * static_cast<uint32_t>(bytes_of(map.type)), map.swizzle),
                 "let the box's rows fill the swizzle");
  } else {
    bytes = number(0);
    if (bytes % kUnit != 0 || (way != Way::Prefetch && addresses[1] % kUnit != 0))
      warp.fault(FindingKind::Misaligned,
                 fmt::format("{}: a bulk copy of {} bytes at {:#x}", warp.thread_name(lane), bytes,
                             addresses[1]),
                 "addresses and sizes of bulk copies are multiples of 16");
  }
  if (way == Way::Prefetch || bytes == 0) return;

  BulkCopy copy;
  copy.way = loads ? BulkCopy::Way::Load : BulkCopy::Way::Store;
  copy.bytes = bytes;
  copy.thread = warp.thread(lane);
  copy.position = warp.position();
  copy.reduction = static_cast<Reduction>(in.b);
  copy.type = in.count > 0 ? map.type : static_cast<Type>(in.immediate);
  copy.nan = map.nan;
  const uint64_t shared =
      shared_place(warp, in.space, lane, addresses[0], bytes, in.count > 0 ? 128 : kUnit,
                   loads ? Intent::Write : Intent::Read);
  Clocks& clocks = block.clocks;
  AgentId reads, writes;
  uint32_t clock;
  if (loads) {
    const Mbarrier& barrier =
        block.mbarriers.find(warp, lane, barrier_address(warp, in.space, lane, addresses[2]), true);
    copy.mbarrier = barrier.address;
    copy.issued = barrier.phases;
    reads = writes = barrier.agent;
    clock = barrier.phases + 1;
  } else {
    copy.group = block.bulk.group(copy.thread);
    reads = clocks.agent(Clocks::Kind::BulkReads, copy.thread);
    writes = clocks.agent(Clocks::Kind::BulkWrites, copy.thread);
    clock = copy.group + 1;
  }
  const Noting in_shared(warp, lane, loads ? writes : reads, clock);
  const Noting in_global(warp, lane, loads ? reads : writes, clock);
  Maker maker(warp, lane, copy, in_shared, in_global);
  if (in.count > 0)
    maker.tensor(map, at, shared);
  else
    maker.run(shared, addresses[1], bytes, false, 0);
  warp.profile().bulk_bytes += bytes;
  block.bulk.begin(std::move(copy));
}

void bulk_copy(Warp& warp, const Instruction& in, uint32_t mask) {
  const auto& offsets = warp.block().grid.entry.tables[static_cast<size_t>(in.target)];
  uint64_t addresses[3][kLanes] = {};
  for (size_t i = 0; i < offsets.size(); ++i) {
    Instruction one = in;
    one.immediate = offsets[i];
    lane_addresses(warp, one, in.operand[i], addresses[i]);
  }
  for_each_lane(mask, [&](int lane) {
    const uint64_t of_lane[3] = {addresses[0][lane], addresses[1][lane], addresses[2][lane]};
    copy_lane(warp, in, lane, of_lane);
  });
}

void commit_group(Warp& warp, const Instruction&, uint32_t mask) {
  for_each_lane(mask, [&](int lane) { warp.block().bulk.commit(warp.thread(lane)); });
}

void wait_group(Warp& warp, const Instruction& in, uint32_t mask) {
  for_each_lane(mask, [&](int lane) {
    warp.block().bulk.wait(warp, warp.thread(lane), static_cast<uint32_t>(in.immediate), in.a != 0);
  });
}

// Addresses become operands, with their offsets in a table.
class AddressTaker {
 public:
  explicit AddressTaker(Decoder& decoder) : d_(decoder) {}
  void take(size_t index, Space space) {
    d_.now.space = space;
    d_.address(index);
    if (d_.now.immediate != static_cast<int32_t>(d_.now.immediate)) d_.fail("an offset of 32 bits");
    offsets_.push_back(static_cast<int32_t>(d_.now.immediate));
  }
  void finish() {
    d_.now.target = static_cast<int32_t>(d_.entry().tables.size());
    d_.entry().tables.push_back(std::move(offsets_));
  }

 private:
  Decoder& d_;
  std::vector<int32_t> offsets_;
};

Reduction reduction_of(Decoder& d) {
  constexpr std::string_view kNames[] = {"", "add", "min", "max", "inc", "dec", "and", "or", "xor"};
  for (size_t i = 1; i < std::size(kNames); ++i)
    if (d.take(kNames[i])) return static_cast<Reduction>(i);
  d.unknown();
}

void take_coordinates(Decoder& d, size_t index, int rank) {
  const SyntaxOperand& address = d.syntax(index);
  if (address.parts.size() != 2 || address.parts[1].parts.size() != static_cast<size_t>(rank))
    d.fail(fmt::format("expected [map, {{{} coordinates}}]", rank));
  for (const SyntaxOperand& each : address.parts[1].parts) d.use(each, Type::B32);
  d.now.count = static_cast<uint8_t>(rank);
}

// The mask of a multicast and the cache policy change nothing that a block of its own cluster sees.
void take_rest(Decoder& d, size_t from) {
  const bool multicast = d.take("multicast::cluster");
  const bool hint = d.take("L2::cache_hint");
  d.expect_operands(from + multicast + hint);
  if (multicast) d.use(from, Type::B16);
  if (hint) d.use(from + multicast, Type::B64);
}

// Into shared memory: [to], [from], bytes, [mbarrier], or [to], [map, {…}], [mbarrier].
void decode_to_shared(Decoder& d, int rank) {
  if ((!d.take("shared::cluster") && !d.take("shared::cta")) || !d.take("global") ||
      !d.take("mbarrier::complete_tx::bytes"))
    d.unknown();
  const size_t barrier = rank > 0 ? 2 : 3;
  AddressTaker addresses(d);
  addresses.take(0, Space::Shared);
  addresses.take(1, rank > 0 ? Space::Generic : Space::Global);
  addresses.take(barrier, Space::Shared);
  addresses.finish();
  rank > 0 ? take_coordinates(d, 1, rank) : d.use(2, Type::U32);
  d.now.a = static_cast<uint8_t>(Way::ToShared);
  d.now.immediate = static_cast<int64_t>(Type::U8);
  take_rest(d, barrier + 1);
}

// Out of it: [to], [from], bytes, or [map, {…}], [from].
void decode_to_global(Decoder& d, int rank, bool reduces) {
  if (!d.take("global") || !d.take("shared::cta") || !d.take("bulk_group")) d.unknown();
  if (reduces) d.now.b = static_cast<uint8_t>(reduction_of(d));
  Type type = Type::U8;
  if (reduces && rank == 0) {
    d.take("noftz");
    type = d.type();
  }
  AddressTaker addresses(d);
  addresses.take(1, Space::Shared);
  addresses.take(0, rank > 0 ? Space::Generic : Space::Global);
  addresses.finish();
  rank > 0 ? take_coordinates(d, 0, rank) : d.use(2, Type::U32);
  d.now.a = static_cast<uint8_t>(Way::ToGlobal);
  d.now.immediate = static_cast<int64_t>(type);
  take_rest(d, rank > 0 ? 2 : 3);
}

// To L2: [from], bytes, or [map, {…}]; only looked at.
void decode_prefetch(Decoder& d, int rank) {
  if (!d.take("L2") || !d.take("global")) d.unknown();
  AddressTaker addresses(d);
  for (int side = 0; side < 2; ++side)  // the same for the side that there is not
    addresses.take(0, rank > 0 ? Space::Generic : Space::Global);
  addresses.finish();
  rank > 0 ? take_coordinates(d, 0, rank) : d.use(1, Type::U32);
  d.now.a = static_cast<uint8_t>(Way::Prefetch);
  take_rest(d, rank > 0 ? 1 : 2);
}

void decode_copy(Decoder& d, bool reduces) {
  int rank = 0;
  if (d.take("tensor")) {
    const std::string_view axes = d.take_one({"1d", "2d", "3d", "4d", "5d"});
    if (axes.empty()) d.unknown();
    rank = axes[0] - '0';
    d.take("tile");
  }
  d.now.count = 0;
  const auto& modifiers = d.statement().modifiers;
  for (std::string_view modifier : modifiers)
    if (modifier.starts_with("im2col")) d.unknown();
  if (!reduces && d.take("prefetch"))
    decode_prefetch(d, rank);
  else if (std::find(modifiers.begin(), modifiers.end(), "bulk_group") != modifiers.end())
    decode_to_global(d, rank, reduces);
  else
    decode_to_shared(d, rank);
  d.now.space = Space::Shared;
  d.now.run = bulk_copy;
}

}  // namespace

void decode_bulk(Decoder& d, bool reduces) {
  if (!reduces && d.take("commit_group")) {
    d.expect_operands(0);
    d.now.run = commit_group;
  } else if (!reduces && d.take("wait_group")) {
    d.now.a = d.take("read");
    d.expect_operands(1);
    d.now.immediate = static_cast<int64_t>(d.integer(0) & 0xffffffff);
    d.now.run = wait_group;
  } else {
    decode_copy(d, reduces);
  }
}

}  // namespace kiln::ptx
