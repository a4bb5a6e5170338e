// setp, set, selp, slct, testp.
#include <cmath>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

enum class Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Num, Nan };

struct CompareName {
  std::string_view name;
  Compare compare;
  uint8_t unordered;  // true for NaN
};
constexpr CompareName kCompares[] = {
    {"eq", Compare::Eq, 0},  {"ne", Compare::Ne, 0},   {"lt", Compare::Lt, 0},
    {"le", Compare::Le, 0},  {"gt", Compare::Gt, 0},   {"ge", Compare::Ge, 0},
    {"lo", Compare::Lt, 0},  {"ls", Compare::Le, 0},   {"hi", Compare::Gt, 0},
    {"hs", Compare::Ge, 0},  {"equ", Compare::Eq, 1},  {"neu", Compare::Ne, 1},
    {"ltu", Compare::Lt, 1}, {"leu", Compare::Le, 1},  {"gtu", Compare::Gt, 1},
    {"geu", Compare::Ge, 1}, {"num", Compare::Num, 0}, {"nan", Compare::Nan, 0},
};

template <class T>
bool holds(Compare compare, bool unordered, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (compare == Compare::Num) return !(a != a) && !(b != b);
    if (a != a || b != b) return compare == Compare::Nan || unordered;
  }
  switch (compare) {
    case Compare::Eq: return a == b;
    case Compare::Ne: return a != b;
    case Compare::Lt: return a < b;
    case Compare::Le: return a <= b;
    case Compare::Gt: return a > b;
    case Compare::Ge: return a >= b;
    default: return false;
  }
}

float value_of(float x, bool flushes) {
  return flushes ? flush(x) : x;
}
double value_of(double x, bool) {
  return x;
}
float value_of(Half x, bool flushes) {
  float value = to_float(x);
  return flushes && std::fabs(value) < 0x1p-14f ? std::copysign(0.0f, value) : value;
}
float value_of(BFloat x, bool) {
  return to_float(x);
}
template <class T>
requires std::is_integral_v<T> T value_of(T x, bool) {
  return x;
}

// in.a: the comparison; in.b: bit 0 unordered, bit 1 ftz, bits 2… what to do with a third
// predicate.
constexpr uint8_t kUnordered = 1, kFlushes = 2, kAnd = 4, kOr = 8, kXor = 16;

template <class T>
uint32_t compare_lanes(Warp& warp, const Instruction& in, uint32_t mask, size_t first) {
  const std::byte *a = warp.at(in.operand[first]), *b = warp.at(in.operand[first + 1]);
  auto compare = static_cast<Compare>(in.a);
  bool unordered = in.b & kUnordered, flushes = in.b & kFlushes;
  return lanes_where(mask, [&](int lane) {
    return holds(compare, unordered, value_of(get<T>(a, lane), flushes),
                 value_of(get<T>(b, lane), flushes));
  });
}

uint32_t combine(uint8_t how, uint32_t a, uint32_t b) {
  if (how & kAnd) return a & b;
  if (how & kOr) return a | b;
  if (how & kXor) return a ^ b;
  return a;
}

// Operands: p, q (or p again), a, b, and perhaps c.
template <class T>
void setp(Warp& warp, const Instruction& in, uint32_t mask) {
  uint32_t result = compare_lanes<T>(warp, in, mask, in.count);
  uint32_t other = in.operands > in.count + 2u ? warp.predicate(in.operand[in.count + 2]) : 0;
  warp.set_predicate(in.operand[0], mask, combine(in.b, result, other));
  if (in.count == 2) warp.set_predicate(in.operand[1], mask, combine(in.b, ~result, other));
}

template <class T>
void setp_pairs(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[2]), *b = warp.at(in.operand[3]);
  auto compare = static_cast<Compare>(in.a);
  uint32_t other = in.operands > 4 ? warp.predicate(in.operand[4]) : 0;
  for (uint32_t half = 0; half < 2; ++half) {
    uint32_t result = lanes_where(mask, [&](int lane) {
      auto part = [&](const std::byte* lanes) {
        T value{static_cast<uint16_t>(get<uint32_t>(lanes, lane) >> (16 * half))};
        return value_of(value, (in.b & kFlushes) != 0);
      };
      return holds(compare, (in.b & kUnordered) != 0, part(a), part(b));
    });
    warp.set_predicate(in.operand[half], mask, combine(in.b, result, other));
  }
}

// d = all ones, or 1.0 if immediate.
template <class T>
void set_value(Warp& warp, const Instruction& in, uint32_t mask) {
  uint32_t result = compare_lanes<T>(warp, in, mask, 1);
  uint32_t other = in.operands > 3 ? warp.predicate(in.operand[3]) : 0;
  result = combine(in.b, result, other);
  auto value = static_cast<uint32_t>(in.immediate);
  fill<uint32_t>(warp.at(in.operand[0]), mask,
                 [=](int lane) { return result >> lane & 1 ? value : 0; });
}

// Each half of d by that of a and b: 1.0, which is the immediate, or 0.
template <class T>
void set_pairs(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]);
  uint32_t other = in.operands > 3 ? warp.predicate(in.operand[3]) : 0;
  auto one = static_cast<uint32_t>(in.immediate);
  fill<uint32_t>(warp.at(in.operand[0]), mask, [=](int lane) {
    uint32_t result = 0;
    for (int shift : {0, 16}) {
      auto part = [&](const std::byte* lanes) {
        T value{static_cast<uint16_t>(get<uint32_t>(lanes, lane) >> shift)};
        return value_of(value, (in.b & kFlushes) != 0);
      };
      bool holds_here =
          holds(static_cast<Compare>(in.a), (in.b & kUnordered) != 0, part(a), part(b));
      if (combine(in.b, holds_here, other >> lane & 1)) result |= one << shift;
    }
    return result;
  });
}

void take_comparison(Decoder& d) {
  bool found = false;
  for (const CompareName& each : kCompares)
    if (!found && d.take(each.name)) {
      d.now.a = static_cast<uint8_t>(each.compare);
      d.now.b |= each.unordered;
      found = true;
    }
  if (!found) d.unknown();
  if (d.take("and")) d.now.b |= kAnd;
  if (d.take("or")) d.now.b |= kOr;
  if (d.take("xor")) d.now.b |= kXor;
  if (d.take("ftz")) d.now.b |= kFlushes;
}

template <template <class> class Of>
Handler by_type(Decoder& d, Type type) {
  switch (type) {
    case Type::B16:
    case Type::U16: return Of<uint16_t>::run;
    case Type::S16: return Of<int16_t>::run;
    case Type::B32:
    case Type::U32: return Of<uint32_t>::run;
    case Type::S32: return Of<int32_t>::run;
    case Type::B64:
    case Type::U64: return Of<uint64_t>::run;
    case Type::S64: return Of<int64_t>::run;
    case Type::F32: return Of<float>::run;
    case Type::F64: return Of<double>::run;
    case Type::F16: return Of<Half>::run;
    case Type::BF16: return Of<BFloat>::run;
    default: d.unknown();
  }
}
template <class T>
struct SetP {
  static constexpr Handler run = setp<T>;
};
template <class T>
struct SetValue {
  static constexpr Handler run = set_value<T>;
};

void decode_setp(Decoder& d) {
  take_comparison(d);
  Type type = d.type();
  bool combines = (d.now.b & (kAnd | kOr | kXor)) != 0;
  d.expect_operands(combines ? 4 : 3);
  const SyntaxOperand& result = d.syntax(0);
  bool pairs = type == Type::F16x2 || type == Type::BF16x2;
  if (result.kind == SyntaxOperand::Kind::Pair) {
    d.now.count = 2;
    d.define(result.parts[0], 0);
    d.define(result.parts[1], 0);
  } else {
    if (pairs) d.fail("the result must be two predicates, 'p|q'");
    d.define(0, Type::Pred);
  }
  d.use(1, type);
  d.use(2, type);
  if (combines) d.use(3, Type::Pred);
  d.now.run = type == Type::F16x2    ? setp_pairs<Half>
              : type == Type::BF16x2 ? setp_pairs<BFloat>
                                     : by_type<SetP>(d, type);
}

void decode_set(Decoder& d) {
  take_comparison(d);
  Type result = d.type(), type = d.type();
  bool pairs = result == type && (type == Type::F16x2 || type == Type::BF16x2);
  if (result != Type::U32 && result != Type::S32 && result != Type::F32 && !pairs) d.unknown();
  bool combines = (d.now.b & (kAnd | kOr | kXor)) != 0;
  d.expect_operands(combines ? 4 : 3);
  d.define(0, result);
  d.use(1, type);
  d.use(2, type);
  if (combines) d.use(3, Type::Pred);
  if (pairs) {
    d.now.immediate = type == Type::F16x2 ? 0x3c00 : 0x3f80;
    d.now.run = type == Type::F16x2 ? set_pairs<Half> : set_pairs<BFloat>;
    return;
  }
  d.now.immediate = result == Type::F32 ? 0x3f800000 : 0xffffffff;
  d.now.run = by_type<SetValue>(d, type);
}

template <class T>
void selp(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]);
  uint32_t first = warp.predicate(in.operand[3]);
  fill<T>(warp.at(in.operand[0]), mask,
          [=](int lane) { return first >> lane & 1 ? get<T>(a, lane) : get<T>(b, lane); });
}

void decode_selp(Decoder& d) {
  Type type = d.type();
  d.expect_operands(4);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  d.use(3, Type::Pred);
  switch (bytes_of(type)) {
    case 2:
    case 4: d.now.run = selp<uint32_t>; return;
    case 8: d.now.run = selp<uint64_t>; return;
    default: d.unknown();
  }
}

// a if c >= 0.
template <class T, class C>
void slct(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]),
                  *c = warp.at(in.operand[3]);
  bool flushes = in.b != 0;
  fill<T>(warp.at(in.operand[0]), mask, [=](int lane) {
    return value_of(get<C>(c, lane), flushes) >= 0 ? get<T>(a, lane) : get<T>(b, lane);
  });
}

void decode_slct(Decoder& d) {
  d.now.b = d.take("ftz");
  Type type = d.type(), by = d.type();
  if (by != Type::S32 && by != Type::F32) d.unknown();
  d.expect_operands(4);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  d.use(3, by);
  bool real = by == Type::F32, wide = bytes_of(type) == 8;
  d.now.run = wide ? (real ? slct<uint64_t, float> : slct<uint64_t, int32_t>)
                   : (real ? slct<uint32_t, float> : slct<uint32_t, int32_t>);
}

template <class T>
void testp(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* a = warp.at(in.operand[1]);
  uint32_t result = lanes_where(mask, [&](int lane) {
    int kind = std::fpclassify(get<T>(a, lane));
    switch (in.a) {
      case 0: return kind != FP_NAN && kind != FP_INFINITE;
      case 1: return kind == FP_INFINITE;
      case 2: return kind != FP_NAN;
      case 3: return kind == FP_NAN;
      case 4: return kind == FP_NORMAL;
      default: return kind == FP_SUBNORMAL;
    }
  });
  warp.set_predicate(in.operand[0], mask, result);
}

void decode_testp(Decoder& d) {
  constexpr std::string_view kClasses[] = {"finite",     "infinite", "number",
                                           "notanumber", "normal",   "subnormal"};
  uint8_t index = 0;
  while (index < std::size(kClasses) && !d.take(kClasses[index])) ++index;
  Type type = d.type();
  if (index == std::size(kClasses) || (type != Type::F32 && type != Type::F64)) d.unknown();
  d.now.a = index;
  d.expect_operands(2);
  d.define(0, Type::Pred);
  d.use(1, type);
  d.now.run = type == Type::F32 ? testp<float> : testp<double>;
}

constexpr Mnemonic kMnemonics[] = {
    {"setp", decode_setp}, {"set", decode_set},     {"selp", decode_selp},
    {"slct", decode_slct}, {"testp", decode_testp},
};

}  // namespace

std::span<const Mnemonic> compare_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
