// Logic, shifts, and instructions about single bits.
#include <bit>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

struct And {
  template <class T>
  T operator()(T a, T b) const {
    return a & b;
  }
};
struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return a | b;
  }
};
struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return a ^ b;
  }
};
struct Not {
  template <class T>
  T operator()(T a) const {
    return static_cast<T>(~a);
  }
};
struct CNot {
  template <class T>
  T operator()(T a) const {
    return a == 0;
  }
};
// Shifts by the width or more give what shifting bit by bit would.
struct ShiftLeft {
  template <class T>
  T operator()(T a, uint32_t count) const {
    return count >= 8 * sizeof(T) ? T{0} : static_cast<T>(a << count);
  }
};
struct ShiftRight {
  template <class T>
  T operator()(T a, uint32_t count) const {
    if (count < 8 * sizeof(T)) return static_cast<T>(a >> count);
    return a < 0 ? static_cast<T>(-1) : T{0};
  }
};
template <bool Left, bool Wraps>
struct Funnel {
  uint32_t operator()(uint32_t low, uint32_t high, uint32_t count) const {
    count = Wraps ? count & 31 : std::min(count, 32u);
    uint64_t both = uint64_t{high} << 32 | low;
    return static_cast<uint32_t>(Left ? both << count >> 32 : both >> count);
  }
};
struct PopCount {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct LeadingZeros {
  template <class T>
  uint32_t operator()(T a) const {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct Reverse {
  template <class T>
  T operator()(T a) const {
    T result = 0;
    for (size_t i = 0; i < 8 * sizeof(T); ++i, a = static_cast<T>(a >> 1))
      result = static_cast<T>(result << 1 | (a & 1));
    return result;
  }
};
// The most significant bit that is not a copy of the sign.
template <bool ShiftAmount>
struct FindBit {
  template <class T>
  uint32_t operator()(T a) const {
    auto bits = static_cast<std::make_unsigned_t<T>>(a < 0 ? ~a : a);
    if (bits == 0) return 0xffffffff;
    auto zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return ShiftAmount ? zeros : static_cast<uint32_t>(8 * sizeof(T)) - 1 - zeros;
  }
};
struct ExtractField {
  template <class T>
  T operator()(T a, uint32_t position, uint32_t length) const {
    using U = std::make_unsigned_t<T>;
    constexpr uint32_t kBits = 8 * sizeof(T);
    position &= 0xff;
    length &= 0xff;
    if (length == 0) return 0;
    U sign = 0;
    if (a < 0 || std::is_signed_v<T>) {
      uint32_t last = std::min(position + length - 1, kBits - 1);
      sign = static_cast<U>(a) >> last & 1;
    }
    U field = position >= kBits ? U{0} : static_cast<U>(a) >> position;
    if (length >= kBits) {
      if (position == 0) return a;
      length = kBits;
    }
    uint32_t there = position >= kBits ? 0 : std::min(length, kBits - position);
    U mask = there >= kBits ? ~U{0} : (U{1} << there) - 1;
    field &= mask;
    if (std::is_signed_v<T> && sign) field |= ~mask;
    return static_cast<T>(field);
  }
};
struct InsertField {
  template <class T>
  T operator()(T a, T b, uint32_t position, uint32_t length) const {
    constexpr uint32_t kBits = 8 * sizeof(T);
    position &= 0xff;
    length &= 0xff;
    if (length == 0 || position >= kBits) return b;
    T mask = length >= kBits ? ~T{0} : (T{1} << length) - 1;
    return (b & ~(mask << position)) | ((a & mask) << position);
  }
};
struct Permute {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t selector) const {
    uint64_t bytes = uint64_t{b} << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      uint32_t nibble = selector >> (4 * i) & 15;
      auto byte = static_cast<uint8_t>(bytes >> (8 * (nibble & 7)));
      if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
      result |= uint32_t{byte} << (8 * i);
    }
    return result;
  }
};
// prmt's modes as selectors, by the two low bits of c.
constexpr uint32_t kModes[6][4] = {
    {0x3210, 0x4321, 0x5432, 0x6543},  // f4e
    {0x5670, 0x6701, 0x7012, 0x0123},  // b4e
    {0x0000, 0x1111, 0x2222, 0x3333},  // rc8
    {0x3210, 0x3211, 0x3222, 0x3333},  // ecl
    {0x0000, 0x1110, 0x2210, 0x3210},  // ecr
    {0x1010, 0x3232, 0x1010, 0x3232},  // rc16
};
template <int Mode>
struct PermuteMode {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
    return Permute{}(a, b, kModes[Mode][c & 3]);
  }
};
template <bool Clamps>
struct Mask {
  uint32_t operator()(uint32_t position, uint32_t length) const {
    if (!Clamps) position &= 31, length &= 31;
    if (position >= 32) return 0;
    uint64_t ones = length >= 32 ? ~uint64_t{0} : (uint64_t{1} << length) - 1;
    return static_cast<uint32_t>(ones << position);
  }
};
template <bool Clamps>
struct SignExtend {
  int32_t operator()(int32_t a, uint32_t bits) const {
    if (!Clamps) bits &= 31;
    if (bits >= 32) return a;
    if (bits == 0) return 0;
    return static_cast<int32_t>(static_cast<uint32_t>(a) << (32 - bits)) >> (32 - bits);
  }
  uint32_t operator()(uint32_t a, uint32_t bits) const {
    if (!Clamps) bits &= 31;
    return bits >= 32 ? a : a & ((1u << bits) - 1);
  }
};
// The n-th set bit from a position on.
struct FindNth {
  uint32_t operator()(uint32_t mask, uint32_t base, int32_t offset) const {
    if (base >= 32) return 0xffffffff;
    int step = offset < 0 ? -1 : 1;
    int64_t left = offset < 0 ? -int64_t{offset} : offset;
    if (offset == 0) return mask >> base & 1 ? base : 0xffffffff;
    for (auto at = static_cast<int>(base); at >= 0 && at < 32; at += step)
      if ((mask >> at & 1) && --left == 0) return static_cast<uint32_t>(at);
    return 0xffffffff;
  }
};

template <class F>
void predicates(Warp& warp, const Instruction& in, uint32_t mask) {
  uint32_t a = warp.predicate(in.operand[1]);
  uint32_t b = in.operands > 2 ? warp.predicate(in.operand[2]) : 0;
  if constexpr (std::is_same_v<F, Not>)
    warp.set_predicate(in.operand[0], mask, ~a);
  else
    warp.set_predicate(in.operand[0], mask, F{}(a, b));
}

template <class F>
Handler binary_bits(Decoder& d, Type type) {
  switch (bytes_of(type)) {
    case 2: return binary<F, uint16_t, uint16_t, uint16_t>;
    case 4: return binary<F, uint32_t, uint32_t, uint32_t>;
    case 8: return binary<F, uint64_t, uint64_t, uint64_t>;
    default: d.unknown();
  }
}

template <class F>
void decode_logic(Decoder& d) {
  Type type = d.type();
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  if (type == Type::Pred)
    d.now.run = predicates<F>;
  else if (is_bits(type))
    d.now.run = binary_bits<F>(d, type);
  else
    d.unknown();
}

template <class F>
void decode_not(Decoder& d) {
  Type type = d.type();
  d.expect_operands(2);
  d.define(0, type);
  d.use(1, type);
  if (type == Type::Pred && std::is_same_v<F, Not>) {
    d.now.run = predicates<Not>;
    return;
  }
  switch (type) {
    case Type::B16: d.now.run = unary<F, uint16_t, uint16_t>; return;
    case Type::B32: d.now.run = unary<F, uint32_t, uint32_t>; return;
    case Type::B64: d.now.run = unary<F, uint64_t, uint64_t>; return;
    default: d.unknown();
  }
}

void decode_shift(Decoder& d) {
  bool left = d.statement().opcode == "shl";
  Type type = d.type();
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, Type::U32);
  if (left && is_bits(type)) {
    switch (bytes_of(type)) {
      case 2: d.now.run = binary<ShiftLeft, uint16_t, uint16_t, uint32_t>; return;
      case 4: d.now.run = binary<ShiftLeft, uint32_t, uint32_t, uint32_t>; return;
      case 8: d.now.run = binary<ShiftLeft, uint64_t, uint64_t, uint32_t>; return;
      default: break;
    }
  } else if (!left && (is_bits(type) || is_integer(type))) {
    bool sign = is_signed(type);
    switch (bytes_of(type)) {
      case 2:
        d.now.run = sign ? binary<ShiftRight, int16_t, int16_t, uint32_t>
                         : binary<ShiftRight, uint16_t, uint16_t, uint32_t>;
        return;
      case 4:
        d.now.run = sign ? binary<ShiftRight, int32_t, int32_t, uint32_t>
                         : binary<ShiftRight, uint32_t, uint32_t, uint32_t>;
        return;
      case 8:
        d.now.run = sign ? binary<ShiftRight, int64_t, int64_t, uint32_t>
                         : binary<ShiftRight, uint64_t, uint64_t, uint32_t>;
        return;
      default: break;
    }
  }
  d.unknown();
}

void use_all(Decoder& d, size_t count, Type type) {
  d.expect_operands(count);
  d.define(0, type);
  for (size_t i = 1; i < count; ++i) d.use(i, type);
}

void decode_shf(Decoder& d) {
  bool left = d.take("l"), wraps = d.take("wrap");
  if ((!left && !d.take("r")) || (!wraps && !d.take("clamp")) || d.type() != Type::B32) d.unknown();
  use_all(d, 4, Type::B32);
  using U = uint32_t;
  d.now.run = left ? (wraps ? ternary<Funnel<true, true>, U, U, U, U>
                            : ternary<Funnel<true, false>, U, U, U, U>)
                   : (wraps ? ternary<Funnel<false, true>, U, U, U, U>
                            : ternary<Funnel<false, false>, U, U, U, U>);
}

void lop3(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]),
                  *c = warp.at(in.operand[3]);
  auto table = static_cast<uint32_t>(in.immediate);
  fill<uint32_t>(warp.at(in.operand[0]), mask, [=](int lane) {
    uint32_t x = get<uint32_t>(a, lane), y = get<uint32_t>(b, lane), z = get<uint32_t>(c, lane);
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; ++i) {
      uint32_t all = table >> i & 1 ? ~0u : 0;
      result |= all & (i & 4 ? x : ~x) & (i & 2 ? y : ~y) & (i & 1 ? z : ~z);
    }
    return result;
  });
}

void decode_lop3(Decoder& d) {
  if (d.type() != Type::B32) d.unknown();
  d.expect_operands(5);
  d.define(0, Type::B32);
  for (size_t i = 1; i < 4; ++i) d.use(i, Type::B32);
  d.now.immediate = static_cast<int64_t>(d.integer(4) & 0xff);
  d.now.run = lop3;
}

template <class F>
void decode_count(Decoder& d) {
  Type type = d.type();
  d.expect_operands(2);
  d.define(0, Type::U32);
  d.use(1, type);
  if (type == Type::B32)
    d.now.run = unary<F, uint32_t, uint32_t>;
  else if (type == Type::B64)
    d.now.run = unary<F, uint32_t, uint64_t>;
  else
    d.unknown();
}

void decode_bfind(Decoder& d) {
  bool amount = d.take("shiftamt");
  Type type = d.type();
  d.expect_operands(2);
  d.define(0, Type::U32);
  d.use(1, type);
  using A = FindBit<true>;
  using P = FindBit<false>;
  using U = uint32_t;
  switch (type) {
    case Type::U32: d.now.run = amount ? unary<A, U, uint32_t> : unary<P, U, uint32_t>; return;
    case Type::S32: d.now.run = amount ? unary<A, U, int32_t> : unary<P, U, int32_t>; return;
    case Type::U64: d.now.run = amount ? unary<A, U, uint64_t> : unary<P, U, uint64_t>; return;
    case Type::S64: d.now.run = amount ? unary<A, U, int64_t> : unary<P, U, int64_t>; return;
    default: d.unknown();
  }
}

void decode_bfe(Decoder& d) {
  Type type = d.type();
  d.expect_operands(4);
  d.define(0, type);
  d.use(1, type);
  d.use(2, Type::U32);
  d.use(3, Type::U32);
  using F = ExtractField;
  using U = uint32_t;
  switch (type) {
    case Type::U32: d.now.run = ternary<F, uint32_t, uint32_t, U, U>; return;
    case Type::S32: d.now.run = ternary<F, int32_t, int32_t, U, U>; return;
    case Type::U64: d.now.run = ternary<F, uint64_t, uint64_t, U, U>; return;
    case Type::S64: d.now.run = ternary<F, int64_t, int64_t, U, U>; return;
    default: d.unknown();
  }
}

template <class T>
void bfi(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]),
                  *c = warp.at(in.operand[3]), *e = warp.at(in.operand[4]);
  fill<T>(warp.at(in.operand[0]), mask, [=](int i) {
    return InsertField{}(get<T>(a, i), get<T>(b, i), get<uint32_t>(c, i), get<uint32_t>(e, i));
  });
}

void decode_bfi(Decoder& d) {
  Type type = d.type();
  if (type != Type::B32 && type != Type::B64) d.unknown();
  d.expect_operands(5);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  d.use(3, Type::U32);
  d.use(4, Type::U32);
  d.now.run = type == Type::B32 ? bfi<uint32_t> : bfi<uint64_t>;
}

void decode_prmt(Decoder& d) {
  if (d.type() != Type::B32) d.unknown();
  std::string_view mode = d.take_one({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  use_all(d, 4, Type::B32);
  using U = uint32_t;
  d.now.run = mode.empty()    ? ternary<Permute, U, U, U, U>
              : mode == "f4e" ? ternary<PermuteMode<0>, U, U, U, U>
              : mode == "b4e" ? ternary<PermuteMode<1>, U, U, U, U>
              : mode == "rc8" ? ternary<PermuteMode<2>, U, U, U, U>
              : mode == "ecl" ? ternary<PermuteMode<3>, U, U, U, U>
              : mode == "ecr" ? ternary<PermuteMode<4>, U, U, U, U>
                              : ternary<PermuteMode<5>, U, U, U, U>;
}

void decode_bmsk(Decoder& d) {
  bool clamps = d.take("clamp");
  if ((!clamps && !d.take("wrap")) || d.type() != Type::B32) d.unknown();
  use_all(d, 3, Type::U32);
  using U = uint32_t;
  d.now.run = clamps ? binary<Mask<true>, U, U, U> : binary<Mask<false>, U, U, U>;
}

void decode_szext(Decoder& d) {
  bool clamps = d.take("clamp");
  if (!clamps && !d.take("wrap")) d.unknown();
  Type type = d.type();
  use_all(d, 3, Type::U32);
  using U = uint32_t;
  using S = int32_t;
  if (type == Type::S32)
    d.now.run = clamps ? binary<SignExtend<true>, S, S, U> : binary<SignExtend<false>, S, S, U>;
  else if (type == Type::U32)
    d.now.run = clamps ? binary<SignExtend<true>, U, U, U> : binary<SignExtend<false>, U, U, U>;
  else
    d.unknown();
}

void decode_fns(Decoder& d) {
  if (d.type() != Type::B32) d.unknown();
  use_all(d, 4, Type::B32);
  d.now.run = ternary<FindNth, uint32_t, uint32_t, uint32_t, int32_t>;
}

void decode_brev(Decoder& d) {
  Type type = d.type();
  use_all(d, 2, type);
  if (type != Type::B32 && type != Type::B64) d.unknown();
  d.now.run =
      type == Type::B32 ? unary<Reverse, uint32_t, uint32_t> : unary<Reverse, uint64_t, uint64_t>;
}

constexpr Mnemonic kMnemonics[] = {
    {"and", decode_logic<And>},
    {"or", decode_logic<Or>},
    {"xor", decode_logic<Xor>},
    {"not", decode_not<Not>},
    {"cnot", decode_not<CNot>},
    {"lop3", decode_lop3},
    {"shl", decode_shift},
    {"shr", decode_shift},
    {"shf", decode_shf},
    {"popc", decode_count<PopCount>},
    {"clz", decode_count<LeadingZeros>},
    {"bfind", decode_bfind},
    {"brev", decode_brev},
    {"bfe", decode_bfe},
    {"bfi", decode_bfi},
    {"prmt", decode_prmt},
    {"bmsk", decode_bmsk},
    {"szext", decode_szext},
    {"fns", decode_fns},
};

}  // namespace

std::span<const Mnemonic> bit_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
