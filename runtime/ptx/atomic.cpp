// atom and red. Blocks run in parallel, so those on global memory are atomic on the host too.
#include <algorithm>
#include <atomic>

#include "runtime/ptx/access.h"
#include "runtime/ptx/decoder.h"

namespace kiln::ptx {
namespace {

enum class Op : uint8_t { And, Or, Xor, Exch, Cas, Add, Inc, Dec, Min, Max };
constexpr std::string_view kNames[] = {"and", "or",  "xor", "exch", "cas",
                                       "add", "inc", "dec", "min",  "max"};

template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                          static_cast<std::make_unsigned_t<T>>(b));
  else
    return canonical(a + b);
}
Half add(Half a, Half b) {
  return to_half(to_float(a) + to_float(b));
}
BFloat add(BFloat a, BFloat b) {
  return to_bfloat(to_float(a) + to_float(b));
}
template <class P, class T>
P add_pair(P a, P b) {
  uint32_t low = add(T{static_cast<uint16_t>(a.bits)}, T{static_cast<uint16_t>(b.bits)}).bits;
  uint32_t high =
      add(T{static_cast<uint16_t>(a.bits >> 16)}, T{static_cast<uint16_t>(b.bits >> 16)}).bits;
  return {low | high << 16};
}
HalfPair add(HalfPair a, HalfPair b) {
  return add_pair<HalfPair, Half>(a, b);
}
BFloatPair add(BFloatPair a, BFloatPair b) {
  return add_pair<BFloatPair, BFloat>(a, b);
}

template <class T>
T apply(Op op, T old, T b, T c, bool flushes) {
  if constexpr (std::is_same_v<T, float>)
    if (op == Op::Add) {
      if (!flushes) return add(old, b);
      return flush(add(flush(old), flush(b)));
    }
  if (op == Op::Add) return add(old, b);
  if constexpr (std::is_integral_v<T>) {
    switch (op) {
      case Op::And: return old & b;
      case Op::Or: return old | b;
      case Op::Xor: return old ^ b;
      case Op::Exch: return b;
      case Op::Cas: return old == b ? c : old;
      case Op::Inc: return old >= b ? T{0} : static_cast<T>(old + 1);
      case Op::Dec: return old == 0 || old > b ? b : static_cast<T>(old - 1);
      case Op::Min: return std::min(old, b);
      case Op::Max: return std::max(old, b);
      default: break;
    }
  }
  return b;
}

template <class T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

// Instruction::a: the operation; b: bit 0 gives a result, bit 1 ftz, bits 2… the strength.
template <class T>
void atomic(Warp& warp, const Instruction& in, uint32_t mask) {
  uint64_t addresses[kLanes];
  bool returns = in.b & 1, flushes = in.b & 2;
  auto strength = static_cast<uint8_t>(in.b >> 2 | kStrong | (returns ? kReads : 0));
  auto op = static_cast<Op>(in.a);
  const Operand* rest = in.operand + returns;
  lane_addresses(warp, in, rest[0], addresses);
  const std::byte *b = warp.at(rest[1]), *c = warp.at(rest[op == Op::Cas ? 2 : 1]);
  Access access(warp, in.space, sizeof(T), Intent::Write);
  for_each_lane(mask, [&](int lane) {
    std::byte* place = access.find(lane, addresses[lane]);
    access.note(lane, addresses[lane], strength, place);
    T x = get<T>(b, lane), y = get<T>(c, lane);
    Bits<T> old, value;
    if (access.space() == Space::Global) {
      std::atomic_ref<Bits<T>> target(*reinterpret_cast<Bits<T>*>(place));
      old = target.load();
      do value = std::bit_cast<Bits<T>>(apply(op, std::bit_cast<T>(old), x, y, flushes));
      while (!target.compare_exchange_weak(old, value));
    } else {
      std::memcpy(&old, place, sizeof old);
      value = std::bit_cast<Bits<T>>(apply(op, std::bit_cast<T>(old), x, y, flushes));
      std::memcpy(place, &value, sizeof value);
    }
    if (returns) set<T>(warp.at(in.operand[0]), lane, std::bit_cast<T>(old));
  });
  count_access(warp, access.space(), addresses, mask, sizeof(T));
}

Handler handler_of(Decoder& d, Op op, Type type) {
  bool exact = op == Op::And || op == Op::Or || op == Op::Xor || op == Op::Exch || op == Op::Cas;
  switch (type) {
    case Type::B16:
      if (op != Op::Cas && op != Op::Exch) d.unknown();
      return atomic<uint16_t>;
    case Type::B32:
      if (!exact) d.unknown();
      return atomic<uint32_t>;
    case Type::B64:
      if (!exact) d.unknown();
      return atomic<uint64_t>;
    case Type::U32: return atomic<uint32_t>;
    case Type::S32: return atomic<int32_t>;
    case Type::U64: return atomic<uint64_t>;
    case Type::S64: return atomic<int64_t>;
    default: break;
  }
  if (op != Op::Add) d.unknown();
  switch (type) {
    case Type::F32: return atomic<float>;
    case Type::F64: return atomic<double>;
    case Type::F16: return atomic<Half>;
    case Type::BF16: return atomic<BFloat>;
    case Type::F16x2: return atomic<HalfPair>;
    case Type::BF16x2: return atomic<BFloatPair>;
    default: d.unknown();
  }
}

void decode_atomic(Decoder& d, bool returns) {
  d.now.space = d.space();
  uint8_t strength = 0;
  if (d.take("acquire")) strength = kAcquire;
  if (d.take("release")) strength = kRelease;
  if (d.take("acq_rel")) strength = kAcquire | kRelease;
  d.take("relaxed");
  for (const char* scope : {"cta", "cluster", "gpu", "sys"}) d.take(scope);
  d.take_prefix("L2::");
  size_t op = 0;
  while (op < std::size(kNames) && !d.take(kNames[op])) ++op;
  if (op == std::size(kNames)) d.unknown();
  d.take("noftz");
  Type type = d.type();
  d.now.a = static_cast<uint8_t>(op);
  // f32 on global memory is flushed, on shared memory it is not.
  bool flushes = type == Type::F32 && d.now.space != Space::Shared;
  d.now.b = static_cast<uint8_t>(returns | flushes << 1 | strength << 2);
  d.now.run = handler_of(d, static_cast<Op>(op), type);
  d.now.touches = d.now.space == Space::Shared ? Touches::Shared : Touches::Global;
  size_t first = returns, values = static_cast<Op>(op) == Op::Cas ? 2 : 1;
  d.expect_operands(first + 1 + values, first + 2 + values);  // a cache policy may follow
  if (returns) d.define(0, type);
  d.address(first);
  for (size_t i = 0; i < values; ++i) d.use(first + 1 + i, type);
}

constexpr Mnemonic kMnemonics[] = {
    {"atom", [](Decoder& d) { decode_atomic(d, true); }},
    {"red", [](Decoder& d) { decode_atomic(d, false); }},
};

}  // namespace

std::span<const Mnemonic> atomic_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
