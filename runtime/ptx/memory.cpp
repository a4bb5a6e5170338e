// ld, st, and what is about addresses: cvta, isspacep, mapa's simple cases, prefetch.
#include <fmt/format.h>

#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"

namespace kiln::ptx {
namespace {

template <class T>
void store_lane(std::byte* lanes, const Operand& to, int lane, T value) {
  if (to.bytes == 8) {
    set<uint64_t>(lanes, lane, static_cast<uint64_t>(value));
  } else {
    set<uint32_t>(lanes, lane, static_cast<uint32_t>(value));
  }
}

// Operands: the results, then the base of the address. T is what is in memory.
template <class T>
void load(Warp& warp, const Instruction& in, uint32_t mask) {
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, in.operand[in.count], addresses);
  uint32_t bytes = sizeof(T) * in.count;
  Access access(warp, in.space, bytes, Intent::Read);
  const std::byte* places[kLanes];
  for_each_lane(mask, [&](int lane) {
    places[lane] = access.find(lane, addresses[lane]);
    access.note(lane, addresses[lane], in.a, places[lane]);
  });
  count_access(warp, access.space(), addresses, mask, bytes);
  for (int n = 0; n < in.count; ++n) {
    std::byte* to = warp.at(in.operand[n]);
    for_each_lane(mask, [&](int lane) {
      T value;
      std::memcpy(&value, places[lane] + static_cast<size_t>(n) * sizeof(T), sizeof(T));
      store_lane(to, in.operand[n], lane, value);
    });
  }
}

// Operands: the base of the address, then the values.
template <class T>
void store(Warp& warp, const Instruction& in, uint32_t mask) {
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, in.operand[0], addresses);
  uint32_t bytes = sizeof(T) * in.count;
  Access access(warp, in.space, bytes, Intent::Write);
  const std::byte* values[8];
  for (int n = 0; n < in.count; ++n) values[n] = warp.at(in.operand[n + 1]);
  for_each_lane(mask, [&](int lane) {
    std::byte* place = access.find(lane, addresses[lane]);
    T value[8];
    for (int n = 0; n < in.count; ++n)
      value[n] = in.operand[n + 1].bytes == 8 ? static_cast<T>(get<uint64_t>(values[n], lane))
                                              : static_cast<T>(get<uint32_t>(values[n], lane));
    access.note(lane, addresses[lane], in.a, place, reinterpret_cast<const std::byte*>(value));
    std::memcpy(place, value, bytes);
  });
  count_access(warp, access.space(), addresses, mask, bytes);
}

struct Wide {
  uint64_t low, high;
};

void load_128(Warp& warp, const Instruction& in, uint32_t mask) {
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, in.operand[1], addresses);
  Access access(warp, in.space, sizeof(Wide), Intent::Read);
  std::byte* to = warp.at(in.operand[0]);
  for_each_lane(mask, [&](int lane) {
    std::byte* place = access.find(lane, addresses[lane]);
    access.note(lane, addresses[lane], in.a, place);
    std::memcpy(to + static_cast<size_t>(lane) * sizeof(Wide), place, sizeof(Wide));
  });
  count_access(warp, access.space(), addresses, mask, sizeof(Wide));
}

void store_128(Warp& warp, const Instruction& in, uint32_t mask) {
  uint64_t addresses[kLanes];
  lane_addresses(warp, in, in.operand[0], addresses);
  Access access(warp, in.space, sizeof(Wide), Intent::Write);
  const std::byte* from = warp.at(in.operand[1]);
  for_each_lane(mask, [&](int lane) {
    std::byte* place = access.find(lane, addresses[lane]);
    const std::byte* value = from + static_cast<size_t>(lane) * sizeof(Wide);
    access.note(lane, addresses[lane], in.a, place, value);
    std::memcpy(place, value, sizeof(Wide));
  });
  count_access(warp, access.space(), addresses, mask, sizeof(Wide));
}

// Caches, scopes and hints change when bytes move, not which.
void take_strength(Decoder& d) {
  for (const char* hint : {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "weak", "cta", "cluster",
                           "gpu", "sys", "unified"})
    d.take(hint);
  d.take_prefix("L1::");
  d.take_prefix("L2::");
  if (d.take("volatile") || d.take("relaxed") || d.take("mmio")) d.now.a |= kStrong;
  if (d.take("acquire")) d.now.a |= kStrong | kAcquire;
  if (d.take("release")) d.now.a |= kStrong | kRelease;
}

uint8_t vector_count(Decoder& d) {
  std::string_view vector = d.take_one({"v2", "v4", "v8"});
  return vector.empty() ? 1 : static_cast<uint8_t>(vector[1] - '0');
}

void set_touches(Decoder& d) {
  if (d.now.space == Space::Shared) d.now.touches = Touches::Shared;
  if (d.now.space == Space::Global || d.now.space == Space::Generic)
    d.now.touches = Touches::Global;
}

void decode_ld(Decoder& d) {
  d.now.space = d.space();
  take_strength(d);
  d.now.count = vector_count(d);
  Type type = d.type();
  d.expect_operands(2, 3);  // a cache policy may follow
  if (bytes_of(type) * d.now.count > 32 || type == Type::Pred) d.unknown();
  set_touches(d);
  d.define_vector(0, type, d.now.count);
  d.address(1);
  switch (type) {
    case Type::S8: d.now.run = load<int8_t>; return;
    case Type::S16: d.now.run = load<int16_t>; return;
    case Type::S32: d.now.run = load<int32_t>; return;
    default: break;
  }
  switch (bytes_of(type)) {
    case 1: d.now.run = load<uint8_t>; return;
    case 2: d.now.run = load<uint16_t>; return;
    case 4: d.now.run = load<uint32_t>; return;
    case 8: d.now.run = load<uint64_t>; return;
    default:
      if (d.now.count != 1) d.unknown();
      d.now.run = load_128;
  }
}

void decode_st(Decoder& d) {
  d.now.space = d.space();
  take_strength(d);
  d.now.count = vector_count(d);
  Type type = d.type();
  d.expect_operands(2, 3);
  if (bytes_of(type) * d.now.count > 32 || type == Type::Pred) d.unknown();
  set_touches(d);
  d.address(0);
  d.use_vector(1, type, d.now.count);
  switch (bytes_of(type)) {
    case 1: d.now.run = store<uint8_t>; return;
    case 2: d.now.run = store<uint16_t>; return;
    case 4: d.now.run = store<uint32_t>; return;
    case 8: d.now.run = store<uint64_t>; return;
    default:
      if (d.now.count != 1) d.unknown();
      d.now.run = store_128;
  }
}

uint64_t window_of(Space space) {
  return space == Space::Shared  ? kSharedWindow
         : space == Space::Local ? kLocalWindow
         : space == Space::Param ? kParamWindow
                                 : 0;
}

struct AddWindow {
  uint64_t operator()(uint64_t a, uint64_t window) const { return a + window; }
};

// cvta.shared.u64 makes a generic address, cvta.to.shared.u64 an address of shared memory.
void decode_cvta(Decoder& d) {
  bool to = d.take("to");
  Space space = d.space();
  d.take("cluster");
  if (d.type() != Type::U64 || space == Space::Generic) d.unknown();
  d.expect_operands(2);
  d.define(0, Type::U64);
  d.use(1, Type::U64);
  uint64_t window = window_of(space);
  d.use_constant(to ? 0 - window : window, 8);
  d.now.run = binary<AddWindow, uint64_t, uint64_t, uint64_t>;
}

void isspacep(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* addresses = warp.at(in.operand[1]);
  warp.set_predicate(in.operand[0], mask, lanes_where(mask, [&](int lane) {
                       return (get<uint64_t>(addresses, lane) & kWindowMask) ==
                              static_cast<uint64_t>(in.immediate);
                     }));
}

void decode_isspacep(Decoder& d) {
  Space space = d.space();
  if (space == Space::Generic) d.unknown();
  d.expect_operands(2);
  d.define(0, Type::Pred);
  d.use(1, Type::U64);
  d.now.immediate = static_cast<int64_t>(window_of(space));
  d.now.run = isspacep;
}

void nothing(Warp&, const Instruction&, uint32_t) {}

// Hints: prefetch, applypriority, discard of L2 lines.
void decode_hint(Decoder& d) {
  d.space();
  for (const char* hint : {"L1", "L2", "L2::evict_last", "L2::evict_normal", "tensormap"})
    d.take(hint);
  d.now.run = nothing;
}

constexpr Mnemonic kMnemonics[] = {
    {"ld", decode_ld},
    {"ldu", decode_ld},
    {"st", decode_st},
    {"cvta", decode_cvta},
    {"isspacep", decode_isspacep},
    {"prefetch", decode_hint},
    {"prefetchu", decode_hint},
    {"applypriority", decode_hint},
};

}  // namespace

std::span<const Mnemonic> memory_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
