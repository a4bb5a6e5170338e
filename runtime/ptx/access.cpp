#include "runtime/ptx/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace kiln::ptx {

void lane_addresses(Warp& warp, const Instruction& in, const Operand& base, uint64_t* addresses) {
  const std::byte* lanes = warp.at(base);
  auto offset = static_cast<uint64_t>(in.immediate);
  if (base.bytes == 8)
    for (int i = 0; i < kLanes; ++i) addresses[i] = get<uint64_t>(lanes, i) + offset;
  else  // an address of shared or local memory wraps at 32 bits
    for (int i = 0; i < kLanes; ++i)
      addresses[i] = get<uint32_t>(lanes, i) + static_cast<uint32_t>(offset);
}

std::byte* Access::find(int lane, uint64_t address) {
  if (address % alignment_ != 0) fault(FindingKind::Misaligned, lane, address);
  found_ = space_;
  uint64_t at = address;
  if (space_ == Space::Generic) {
    uint64_t window = address & kWindowMask;
    found_ = window == kSharedWindow  ? Space::Shared
             : window == kLocalWindow ? Space::Local
             : window == kParamWindow ? Space::Param
                                      : Space::Global;
    at = address & ~kWindowMask;
  }
  Block& block = warp_.block();
  switch (found_) {
    case Space::Shared: {
      uint64_t offset = at - kSharedBase;
      if (at < kSharedBase || offset + bytes_ > block.shared.size() || offset + bytes_ < offset)
        fault(FindingKind::OutOfBounds, lane, at);
      return block.shared.data() + offset;
    }
    case Space::Local:
      if (at > block.grid.entry.local_bytes || block.grid.entry.local_bytes - at < bytes_)
        fault(FindingKind::OutOfBounds, lane, at);
      return warp_.local(lane) + at;
    case Space::Param: {
      auto parameters = block.grid.parameters;
      if (at > parameters.size() || parameters.size() - at < bytes_)
        fault(FindingKind::OutOfBounds, lane, at);
      if (intent_ == Intent::Write) fault(FindingKind::ReadOnly, lane, at);
      return const_cast<std::byte*>(parameters.data()) + at;
    }
    default: return find_global(lane, at);
  }
}

std::byte* Access::find_global(int lane, uint64_t address) {
  const Memory::Range* range = warp_.recent;
  if (!range || address < range->begin || address >= range->end) {
    const auto& ranges = warp_.block().grid.ranges;
    auto after = std::upper_bound(ranges.begin(), ranges.end(), address,
                                  [](uint64_t a, const auto& r) { return a < r.begin; });
    if (after == ranges.begin()) fault(FindingKind::OutOfBounds, lane, address);
    range = &*(after - 1);
    if (address >= range->end) fault(FindingKind::OutOfBounds, lane, address);
    warp_.recent = range;
  }
  if (range->end - address < bytes_) fault(FindingKind::OutOfBounds, lane, address);
  if (intent_ == Intent::Write && !range->writable) fault(FindingKind::ReadOnly, lane, address);
  return reinterpret_cast<std::byte*>(address);
}

void Access::fault(FindingKind kind, int lane, uint64_t address) {
  const char* advice =
      kind == FindingKind::Misaligned ? "an access must be aligned to its size in bytes"
      : kind == FindingKind::ReadOnly ? "write to memory that the launch may change"
                                      : "guard the access, or check its index and the strides";
  Space space = found_ == Space::Generic ? space_ : found_;
  warp_.fault(kind,
              fmt::format("{} {} {} bytes at {}", warp_.thread_name(lane),
                          intent_ == Intent::Read ? "reads" : "writes", bytes_,
                          describe_address(warp_.block().grid, space, address)),
              advice);
}

void Access::note(int lane, uint64_t address, uint8_t strength, const std::byte* place,
                  const std::byte* value, bool async) {
  Block& block = warp_.block();
  const Options& options = block.grid.options;
  address &= ~kWindowMask;
  Accessor who{warp_.index, lane,  warp_.position(), (strength & kStrong) != 0, async,
               agent_,      clock_};
  bool write = intent_ == Intent::Write;
  auto touch = [&](Cell& cell) {
    return write ? write_cell(cell, who, block.clocks) : read_cell(cell, who, block.clocks);
  };
  Clash clash;
  if (found_ == Space::Shared) {
    if (!options.check_races && !options.check_uninitialized) return;
    clash = block.shadow.visit(address - kSharedBase, bytes_, touch);
  } else if (found_ == Space::Global && options.check_races) {
    clash = block.global_shadow.visit(address, bytes_, touch);
    if (clash.kind == Clash::Kind::Uninitialized) clash = {};
    if (block.between && warp_.recent->writable)
      block.between->note(address, bytes_, who.instruction, write, who.strong);
  }
  if (who.strong && options.check_races) {
    bool reads = !write || (strength & (kAcquire | kReads)), acquires = strength & kAcquire;
    bool releases = strength & kRelease;
    if (block.between && found_ == Space::Global)
      block.between->strong_access(reads, write, acquires, releases);
    if (reads) block.clocks.strong_read(warp_.index, address, acquires);
    if (write) block.clocks.strong_write(warp_.index, address, releases);
  }
  bool wanted =
      clash.kind == Clash::Kind::Uninitialized ? options.check_uninitialized : options.check_races;
  if (!clash || !wanted) return;
  // Two threads that write the same value: whichever comes last, the result is one.
  if (write && clash.kind == Clash::Kind::Write && value && std::memcmp(place, value, bytes_) == 0)
    return;
  report(clash, lane, address);
}

namespace {

// What an agent is in words; of a warp, one of its threads.
std::string describe_agent(const Clocks& clocks, AgentId agent, int lane) {
  const Clocks::Key key = clocks.key(agent);
  switch (key.kind) {
    case Clocks::Kind::Wgmma: return fmt::format("a wgmma of warp {}", key.id);
    case Clocks::Kind::BulkReads:
    case Clocks::Kind::BulkWrites: return fmt::format("a bulk copy of thread {}", key.id);
    case Clocks::Kind::Mbarrier:
      return fmt::format("a bulk copy that the mbarrier at {:#x} counts",
                         key.id & ((1u << Mbarriers::kAddressBits) - 1));
    default: return fmt::format("thread {}", key.id * kLanes + static_cast<uint32_t>(lane));
  }
}

std::string_view how_to_await(Clocks::Kind kind) {
  switch (kind) {
    case Clocks::Kind::Wgmma: return "wait for it (wgmma.commit_group, wgmma.wait_group) before";
    case Clocks::Kind::Mbarrier:
      return "wait for the mbarrier's phase (mbarrier.try_wait) before this access";
    case Clocks::Kind::Warp:
      return "wait for the group (cp.async.wait_group) before a barrier and this access";
    default:
      return "wait for its group (cp.async.bulk.commit_group, cp.async.bulk.wait_group) before";
  }
}

}  // namespace

void Access::report(const Clash& clash, int lane, uint64_t address) {
  const Grid& grid = warp_.block().grid;
  const Clocks& clocks = warp_.block().clocks;
  const std::string doer = agent_ == 0 ? warp_.thread_name(lane)
                                       : fmt::format("{} ({})", warp_.thread_name(lane),
                                                     describe_agent(clocks, agent_, lane));
  std::string access = fmt::format("{} {} {}", doer, intent_ == Intent::Read ? "reads" : "writes",
                                   describe_address(grid, found_, address));
  if (clash.kind == Clash::Kind::Uninitialized)
    return warp_.report(FindingKind::UninitializedShared,
                        fmt::format("{}, which nothing was written to", access),
                        "write it first, or shrink the read");
  const Clocks::Kind kind = clocks.key(clash.agent).kind;
  const bool in_flight = clash.kind == Clash::Kind::Async || kind != Clocks::Kind::Warp;
  std::string other = fmt::format("{} {} {}", describe_agent(clocks, clash.agent, clash.lane),
                                  clash.kind == Clash::Kind::Read    ? "reads it"
                                  : clash.kind == Clash::Kind::Async ? "copies to it"
                                                                     : "writes it",
                                  describe(grid, clash.instruction));
  if (clash.kind == Clash::Kind::Proxy)
    return warp_.report(
        FindingKind::ProxyFence,
        fmt::format("{} by the async proxy; {}, which that need not see", access, other),
        "fence.proxy.async by the threads that write, then a barrier");
  if (in_flight)
    return warp_.report(
        FindingKind::AsyncNotAwaited,
        fmt::format("{}; {} asynchronously and has not awaited that", access, other),
        std::string(how_to_await(kind)));
  bool same_warp = clash.agent == warp_.index;
  warp_.report(FindingKind::Race,
               fmt::format("{}; {} and no {} orders the two", access, other,
                           same_warp ? "barrier or bar.warp.sync" : "barrier"),
               "put a barrier between the two, or let one thread do both");
}

std::string describe_address(const Grid& grid, Space space, uint64_t address) {
  std::string text =
      fmt::format("{} address {:#x}", space == Space::Generic ? "generic" : name(space), address);
  if (space == Space::Shared) {
    uint64_t end = kSharedBase + grid.shared_bytes;
    const Variable* inside = nullptr;
    for (const Variable& variable : grid.entry.shared_variables)
      if (address >= variable.offset && (!inside || variable.offset >= inside->offset))
        inside = &variable;
    if (address >= end || address < kSharedBase)
      return text + fmt::format(" (the block has [{:#x}, {:#x}))", kSharedBase, end);
    return inside ? text + fmt::format(" ('{}' + {})", inside->name, address - inside->offset)
                  : text;
  }
  if (space != Space::Global && space != Space::Const && space != Space::Generic) return text;
  const Memory::Range* before = nullptr;
  const Memory::Range* after = nullptr;
  for (const Memory::Range& range : grid.ranges) {
    if (range.begin <= address) before = &range;
    if (range.begin > address && !after) after = &range;
  }
  if (before && address < before->end)
    return text + fmt::format(" ('{}' + {} of {} bytes)", before->name, address - before->begin,
                              before->end - before->begin);
  if (before && (!after || address - before->end <= after->begin - address))
    return text +
           fmt::format(" ({} bytes past the end of '{}')", address - before->end, before->name);
  if (after)
    return text + fmt::format(" ({} bytes before '{}')", after->begin - address, after->name);
  return text + " (the launch has no global memory)";
}

// Whether two passes of a wide access, which this mask covers, are made as one: if the lanes of all
// pairs one apart, or of all pairs two apart, are at one address.
static bool paired(const uint64_t* addresses, uint32_t mask) {
  for (int apart : {1, 2}) {
    bool all = true;
    for_each_lane(mask, [&](int lane) {
      int other = lane ^ apart;
      all &= (mask >> other & 1) == 0 || addresses[lane] == addresses[other];
    });
    if (all) return true;
  }
  return false;
}

// 32 banks of 4 bytes. A pass serves 32 lanes of up to 4 bytes, 16 of 8 or 8 of 16, or twice as
// many if they are paired; lanes that read one word share it.
void count_shared(InstructionProfile& profile, const uint64_t* addresses, uint32_t mask,
                  uint32_t bytes) {
  uint32_t words = std::max(bytes, 4u) / 4;
  int lanes_a_pass = std::max(1, kLanes / static_cast<int>(words));
  auto lanes_of = [&](int first, int lanes) {
    return mask & static_cast<uint32_t>(((uint64_t{1} << lanes) - 1) << first);
  };
  for (int first = 0; first < kLanes;) {
    int lanes = lanes_a_pass;
    if (words > 1 && first % (2 * lanes) == 0 && paired(addresses, lanes_of(first, 2 * lanes)))
      lanes *= 2;
    uint64_t seen[kLanes][kLanes];
    uint8_t count[kLanes] = {};
    uint8_t most = 0;
    for_each_lane(lanes_of(first, lanes), [&](int lane) {
      for (uint32_t word = 0; word < words; ++word) {
        uint64_t at = addresses[lane] / 4 + word;
        auto bank = static_cast<size_t>(at % kLanes);
        uint64_t* end = seen[bank] + count[bank];
        if (std::find(seen[bank], end, at) != end) continue;
        *end = at;
        most = std::max(most, ++count[bank]);
      }
    });
    profile.wavefronts += most;
    profile.conflicts += most > 0 ? most - 1u : 0u;
    first += lanes;
  }
}

uint64_t count_global(InstructionProfile& profile, const uint64_t* addresses, uint32_t mask,
                      uint32_t bytes) {
  uint64_t sectors[kLanes * 2];
  size_t count = 0;
  for_each_lane(mask, [&](int lane) {
    uint64_t first = addresses[lane] / 32, last = (addresses[lane] + bytes - 1) / 32;
    for (uint64_t sector = first; sector <= last && count < std::size(sectors); ++sector)
      if (count == 0 || sectors[count - 1] != sector) sectors[count++] = sector;
  });
  std::sort(sectors, sectors + count);
  const auto distinct = static_cast<uint64_t>(std::unique(sectors, sectors + count) - sectors);
  profile.sectors += distinct;
  profile.bytes += uint64_t{bytes} * static_cast<uint64_t>(std::popcount(mask));
  return distinct;
}

void count_access(Warp& warp, Space space, const uint64_t* addresses, uint32_t mask,
                  uint32_t bytes) {
  if (space == Space::Shared) count_shared(warp.profile(), addresses, mask, bytes);
  if (space != Space::Global) return;
  const uint64_t sectors = count_global(warp.profile(), addresses, mask, bytes);
  if (warp.block().clock && warp.instruction().source->opcode == "st")
    warp.block().clock->store(warp.index, sectors);
}

}  // namespace kiln::ptx
