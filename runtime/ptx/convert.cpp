// cvt: the common conversions in loops of their own, all others by convert_bits.
#include "runtime/ptx/convert.h"

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

// Instruction::immediate holds a Conversion.
int64_t packed(const Conversion& how) {
  return static_cast<int64_t>(how.to) | static_cast<int64_t>(how.from) << 8 |
         static_cast<int64_t>(how.rounding) << 16 | int64_t{how.integral} << 24 |
         int64_t{how.flushes} << 25 | int64_t{how.saturates} << 26 | int64_t{how.finite} << 27 |
         int64_t{how.relu} << 28;
}
Conversion unpacked(int64_t bits) {
  Conversion how{static_cast<Type>(bits & 0xff), static_cast<Type>(bits >> 8 & 0xff)};
  how.rounding = static_cast<Rounding>(bits >> 16 & 0xff);
  how.integral = bits >> 24 & 1;
  how.flushes = bits >> 25 & 1;
  how.saturates = bits >> 26 & 1;
  how.finite = bits >> 27 & 1;
  how.relu = bits >> 28 & 1;
  return how;
}

uint64_t read(Warp& warp, const Operand& operand, int lane) {
  const std::byte* lanes = warp.at(operand);
  return operand.bytes == 8 ? get<uint64_t>(lanes, lane) : get<uint32_t>(lanes, lane);
}
void write(Warp& warp, const Operand& operand, int lane, uint64_t value) {
  if (operand.bytes == 8)
    set<uint64_t>(warp.at(operand), lane, value);
  else
    set<uint32_t>(warp.at(operand), lane, static_cast<uint32_t>(value));
}

// A result that is wider than its type holds the value extended as the type says.
uint64_t widened(Type type, uint64_t bits) {
  if (!is_signed(type)) return bits;
  int unused = 64 - 8 * bytes_of(type);
  return static_cast<uint64_t>(static_cast<int64_t>(bits << unused) >> unused);
}

uint64_t masked(Type type, uint64_t bits) {
  int width = 8 * bytes_of(type);
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

void convert_any(Warp& warp, const Instruction& in, uint32_t mask) {
  Conversion how = unpacked(in.immediate);
  for_each_lane(mask, [&](int lane) {
    uint64_t bits = masked(how.from, read(warp, in.operand[1], lane));
    write(warp, in.operand[0], lane, widened(how.to, convert_bits(how, bits)));
  });
}

// Two values of f32 into one register: the first operand goes to the upper half.
void convert_pair(Warp& warp, const Instruction& in, uint32_t mask) {
  Conversion how = unpacked(in.immediate);
  int width = 8 * bytes_of(how.to);
  fill<uint32_t>(warp.at(in.operand[0]), mask, [&](int lane) {
    uint64_t high = convert_bits(how, get<uint32_t>(warp.at(in.operand[1]), lane));
    uint64_t low = convert_bits(how, get<uint32_t>(warp.at(in.operand[2]), lane));
    return static_cast<uint32_t>(high << width | low);
  });
}

// Both parts of one packed register: e4m3x2 from f16x2, f16x2 from e5m2x2.
void convert_parts(Warp& warp, const Instruction& in, uint32_t mask) {
  Conversion how = unpacked(in.immediate);
  int from = 8 * bytes_of(how.from), to = 8 * bytes_of(how.to);
  fill<uint32_t>(warp.at(in.operand[0]), mask, [&](int lane) {
    uint32_t bits = get<uint32_t>(warp.at(in.operand[1]), lane);
    uint64_t low = convert_bits(how, masked(how.from, bits));
    uint64_t high = convert_bits(how, masked(how.from, bits >> from));
    return static_cast<uint32_t>(high << to | low);
  });
}

struct HalfFromFloat {
  Half operator()(float x) const { return to_half(x); }
};
struct BFloatFromFloat {
  BFloat operator()(float x) const { return to_bfloat(x); }
};
struct ToFloat {
  template <class T>
  float operator()(T x) const {
    return canonical(to_float(x));
  }
};
struct Cast {
  template <class T>
  float operator()(T x) const {
    return static_cast<float>(x);
  }
};
template <class To>
struct PairFromFloats {
  uint32_t operator()(float high, float low) const {
    return uint32_t{To{}(high).bits} << 16 | To{}(low).bits;
  }
};

template <class D, class S>
void extend(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte* a = warp.at(in.operand[1]);
  bool wide = in.operand[1].bytes == 8;
  fill<D>(warp.at(in.operand[0]), mask, [=](int lane) {
    return static_cast<D>(wide ? static_cast<S>(get<uint64_t>(a, lane))
                               : static_cast<S>(get<uint32_t>(a, lane)));
  });
}

template <class D>
Handler extend_from(Type from) {
  switch (from) {
    case Type::U8: return extend<D, uint8_t>;
    case Type::S8: return extend<D, int8_t>;
    case Type::U16: return extend<D, uint16_t>;
    case Type::S16: return extend<D, int16_t>;
    case Type::U32: return extend<D, uint32_t>;
    case Type::S32: return extend<D, int32_t>;
    default: return extend<D, uint64_t>;
  }
}

// A loop of its own for this conversion, or the general one.
Handler fast(const Conversion& how, uint8_t to_bytes, uint8_t from_bytes) {
  bool plain = how.rounding == Rounding::Nearest && !how.integral && !how.flushes &&
               !how.saturates && !how.finite && !how.relu;
  if (is_integer(how.to) && is_integer(how.from) && !how.saturates) {
    if (to_bytes == 8 && bytes_of(how.to) == 8) return extend_from<uint64_t>(how.from);
    if (to_bytes == 4 && bytes_of(how.to) == 4) return extend_from<uint32_t>(how.from);
  }
  if (!plain || from_bytes != std::max(4, bytes_of(how.from)) || to_bytes != 4) return convert_any;
  if (how.to == Type::F32) {
    switch (how.from) {
      case Type::F16: return unary<ToFloat, float, Half>;
      case Type::BF16: return unary<ToFloat, float, BFloat>;
      case Type::S32: return unary<Cast, float, int32_t>;
      case Type::U32: return unary<Cast, float, uint32_t>;
      default: break;
    }
  }
  if (how.from == Type::F32 && how.to == Type::F16) return unary<HalfFromFloat, Half, float>;
  if (how.from == Type::F32 && how.to == Type::BF16) return unary<BFloatFromFloat, BFloat, float>;
  return convert_any;
}

Type element_of(Type type) {
  switch (type) {
    case Type::F16x2: return Type::F16;
    case Type::BF16x2: return Type::BF16;
    case Type::E4M3x2: return Type::E4M3;
    case Type::E5M2x2: return Type::E5M2;
    default: return type;
  }
}

void decode_packed(Decoder& d, Conversion how) {
  Type to = how.to, from = how.from;
  how.to = element_of(to);
  how.from = element_of(from);
  d.now.immediate = packed(how);
  d.define(0, bytes_of(to) == 2 ? Type::B16 : Type::B32);
  if (from == Type::F32) {
    d.expect_operands(3);
    d.use(1, Type::F32);
    d.use(2, Type::F32);
    bool plain = how.rounding == Rounding::Nearest && !how.finite && !how.relu && !how.flushes;
    using F = float;
    if (plain && to == Type::F16x2)
      d.now.run = binary<PairFromFloats<HalfFromFloat>, uint32_t, F, F>;
    else if (plain && to == Type::BF16x2)
      d.now.run = binary<PairFromFloats<BFloatFromFloat>, uint32_t, F, F>;
    else
      d.now.run = convert_pair;
    return;
  }
  d.expect_operands(2);
  if (element_of(from) == from || element_of(to) == to) d.unknown();
  d.use(1, bytes_of(from) == 2 ? Type::B16 : Type::B32);
  d.now.run = convert_parts;
}

// cvt.pack.sat.u8.s32.b32 d, a, b, c: a and b saturated and packed, above c's low bytes.
void pack(Warp& warp, const Instruction& in, uint32_t mask) {
  Conversion how = unpacked(in.immediate);
  int width = 8 * bytes_of(how.to);
  fill<uint32_t>(warp.at(in.operand[0]), mask, [&](int lane) {
    auto part = [&](int i) {
      return convert_bits(how, get<uint32_t>(warp.at(in.operand[i]), lane));
    };
    uint64_t both = part(1) << width | part(2);
    if (in.operands > 3)
      both |= uint64_t{get<uint32_t>(warp.at(in.operand[3]), lane)} << (2 * width);
    return static_cast<uint32_t>(both);
  });
}

void decode_pack(Decoder& d) {
  if (!d.take("sat")) d.unknown();
  Conversion how{d.type(), d.type()};
  how.saturates = true;
  if (!is_integer(how.to) || bytes_of(how.to) > 2 || how.from != Type::S32) d.unknown();
  bool third = d.take("b32");
  d.expect_operands(third ? 4 : 3);
  d.define(0, Type::B32);
  d.use(1, Type::S32);
  d.use(2, Type::S32);
  if (third) d.use(3, Type::B32);
  d.now.immediate = packed(how);
  d.now.run = pack;
}

void decode_cvt(Decoder& d) {
  if (d.take("pack")) return decode_pack(d);
  Conversion how{};
  std::string_view mode = d.take_one({"rni", "rzi", "rmi", "rpi", "rn", "rz", "rm", "rp", "rna"});
  how.flushes = d.take("ftz");
  how.relu = d.take("relu");
  how.finite = d.take("satfinite");
  how.saturates = d.take("sat");
  how.to = d.type();
  how.from = d.type();
  if (mode == "rna")
    how.rounding = Rounding::NearestAway;
  else if (mode.size() > 1)
    how.rounding = mode[1] == 'z'   ? Rounding::Zero
                   : mode[1] == 'm' ? Rounding::Down
                   : mode[1] == 'p' ? Rounding::Up
                                    : Rounding::Nearest;
  auto scalar = [](Type type) { return is_integer(type) || is_float(type); };
  if (element_of(how.to) != how.to || element_of(how.from) != how.from)
    return decode_packed(d, how);
  if (!scalar(how.to) || !scalar(how.from)) d.unknown();
  bool integral = mode.size() == 3 && mode != "rna";
  if (integral && !is_float(how.from)) d.unknown();
  how.integral = integral && is_float(how.to);
  d.expect_operands(2);
  d.define_wide(d.syntax(0), bytes_of(how.to));
  uint8_t to = d.last_operand().bytes;
  d.use_wide(d.syntax(1), how.from);
  uint8_t from = d.last_operand().bytes;
  d.now.immediate = packed(how);
  d.now.run = fast(how, to, from);
}

constexpr Mnemonic kMnemonics[] = {{"cvt", decode_cvt}};

}  // namespace

std::span<const Mnemonic> convert_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
