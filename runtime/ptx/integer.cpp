// Integer arithmetic.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "runtime/ptx/arithmetic.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

template <class T>
using Unsigned = std::make_unsigned_t<T>;
// Twice as wide.
template <class T>
struct WideOf;
template <>
struct WideOf<uint16_t> {
  using type = uint32_t;
};
template <>
struct WideOf<int16_t> {
  using type = int32_t;
};
template <>
struct WideOf<uint32_t> {
  using type = uint64_t;
};
template <>
struct WideOf<int32_t> {
  using type = int64_t;
};
template <>
struct WideOf<uint64_t> {
  using type = UInt128;
};
template <>
struct WideOf<int64_t> {
  using type = Int128;
};
template <class T>
using Wide = typename WideOf<T>::type;

// Operations wrap: they are done on unsigned values that C++ does not promote to int.
template <class T>
using Ring = std::conditional_t<(sizeof(T) < 4), uint32_t, Unsigned<T>>;

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Ring<T>>(a) + static_cast<Ring<T>>(b));
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Ring<T>>(a) - static_cast<Ring<T>>(b));
  }
};
struct MulLow {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Ring<T>>(a) * static_cast<Ring<T>>(b));
  }
};
struct MulHigh {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>((static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <class T>
  Wide<T> operator()(T a, T b) const {
    return static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b);
  }
};
template <class M>
struct ThenAdd {
  template <class T, class C>
  C operator()(T a, T b, C c) const {
    return Add{}(static_cast<C>(M{}(a, b)), c);
  }
};
int32_t saturated(int64_t value) {
  return static_cast<int32_t>(std::clamp<int64_t>(value, std::numeric_limits<int32_t>::min(),
                                                  std::numeric_limits<int32_t>::max()));
}
struct AddSaturated {
  int32_t operator()(int32_t a, int32_t b) const { return saturated(int64_t{a} + b); }
};
struct SubSaturated {
  int32_t operator()(int32_t a, int32_t b) const { return saturated(int64_t{a} - b); }
};
struct MadHighSaturated {
  int32_t operator()(int32_t a, int32_t b, int32_t c) const {
    return saturated(int64_t{MulHigh{}(a, b)} + c);
  }
};
// What a GPU gives where C++ says nothing: all ones for x/0, x for x mod 0.
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return static_cast<T>(~T{0});
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return Sub{}(T{0}, a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  T operator()(T a, T b) const {
    if (b == 0) return a;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  T operator()(T a, T b) const {
    return std::min(a, b);
  }
};
struct Max {
  template <class T>
  T operator()(T a, T b) const {
    return std::max(a, b);
  }
};
template <class F>
struct Relu {
  template <class T>
  T operator()(T a, T b) const {
    return std::max<T>(F{}(a, b), 0);
  }
};
struct Neg {
  template <class T>
  T operator()(T a) const {
    return Sub{}(T{0}, a);
  }
};
struct Abs {
  template <class T>
  T operator()(T a) const {
    return a < 0 ? Sub{}(T{0}, a) : a;
  }
};
struct Sad {
  template <class T, class C>
  C operator()(T a, T b, C c) const {
    return Add{}(c, static_cast<C>(a > b ? Sub{}(a, b) : Sub{}(b, a)));
  }
};

// The same function of both halves.
template <class F, class T>
struct Pairwise {
  uint32_t operator()(uint32_t a, uint32_t b) const {
    auto low = static_cast<uint16_t>(F{}(static_cast<T>(a), static_cast<T>(b)));
    auto high = static_cast<uint16_t>(F{}(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return low | static_cast<uint32_t>(high) << 16;
  }
};

template <class F>
Handler binary_of(Decoder& d, Type type) {
  switch (type) {
    case Type::U16: return binary<F, uint16_t, uint16_t, uint16_t>;
    case Type::S16: return binary<F, int16_t, int16_t, int16_t>;
    case Type::U32: return binary<F, uint32_t, uint32_t, uint32_t>;
    case Type::S32: return binary<F, int32_t, int32_t, int32_t>;
    case Type::U64: return binary<F, uint64_t, uint64_t, uint64_t>;
    case Type::S64: return binary<F, int64_t, int64_t, int64_t>;
    default: d.unknown();
  }
}
template <class F>
Handler pairs_of(Decoder& d, Type type) {
  switch (type) {
    case Type::U16x2: return binary<Pairwise<F, uint16_t>, uint32_t, uint32_t, uint32_t>;
    case Type::S16x2: return binary<Pairwise<F, int16_t>, uint32_t, uint32_t, uint32_t>;
    default: return binary_of<F>(d, type);
  }
}
template <class F>
Handler ternary_of(Decoder& d, Type type) {
  switch (type) {
    case Type::U16: return ternary<F, uint16_t, uint16_t, uint16_t, uint16_t>;
    case Type::S16: return ternary<F, int16_t, int16_t, int16_t, int16_t>;
    case Type::U32: return ternary<F, uint32_t, uint32_t, uint32_t, uint32_t>;
    case Type::S32: return ternary<F, int32_t, int32_t, int32_t, int32_t>;
    case Type::U64: return ternary<F, uint64_t, uint64_t, uint64_t, uint64_t>;
    case Type::S64: return ternary<F, int64_t, int64_t, int64_t, int64_t>;
    default: d.unknown();
  }
}
template <class F>
Handler signed_of(Decoder& d, Type type) {
  switch (type) {
    case Type::S16: return unary<F, int16_t, int16_t>;
    case Type::S32: return unary<F, int32_t, int32_t>;
    case Type::S64: return unary<F, int64_t, int64_t>;
    default: d.unknown();
  }
}

Type widened(Decoder& d, Type type) {
  switch (type) {
    case Type::U16: return Type::U32;
    case Type::S16: return Type::S32;
    case Type::U32: return Type::U64;
    case Type::S32: return Type::S64;
    default: d.unknown();
  }
}

Handler mul_wide(Decoder& d, Type type) {
  switch (type) {
    case Type::U16: return binary<MulWide, uint32_t, uint16_t, uint16_t>;
    case Type::S16: return binary<MulWide, int32_t, int16_t, int16_t>;
    case Type::U32: return binary<MulWide, uint64_t, uint32_t, uint32_t>;
    case Type::S32: return binary<MulWide, int64_t, int32_t, int32_t>;
    default: d.unknown();
  }
}
Handler mad_wide(Decoder& d, Type type) {
  using F = ThenAdd<MulWide>;
  switch (type) {
    case Type::U16: return ternary<F, uint32_t, uint16_t, uint16_t, uint32_t>;
    case Type::S16: return ternary<F, int32_t, int16_t, int16_t, int32_t>;
    case Type::U32: return ternary<F, uint64_t, uint32_t, uint32_t, uint64_t>;
    case Type::S32: return ternary<F, int64_t, int32_t, int32_t, int64_t>;
    default: d.unknown();
  }
}

// a + b + carry with the carry kept: add.cc, addc, addc.cc; subtraction adds ~b and 1.
template <class T, bool Subtracts>
void add_carry(Warp& warp, const Instruction& in, uint32_t mask) {
  bool uses = (in.a & 1) != 0, sets = (in.a & 2) != 0;
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]);
  std::byte* to = warp.at(in.operand[0]);
  for_each_lane(mask, [&](int lane) {
    T x = get<T>(a, lane), y = get<T>(b, lane);
    if (Subtracts) y = static_cast<T>(~y);
    T carry = uses ? (warp.carry >> lane & 1) : (Subtracts ? 1 : 0);
    T sum = x + y;
    bool over = sum < x;
    T all = sum + carry;
    over |= all < sum;
    set<T>(to, lane, all);
    if (sets) warp.carry = (warp.carry & ~(1u << lane)) | static_cast<uint32_t>(over) << lane;
  });
}

template <class T, bool High>
void mad_carry(Warp& warp, const Instruction& in, uint32_t mask) {
  bool uses = (in.a & 1) != 0, sets = (in.a & 2) != 0;
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]),
                  *c = warp.at(in.operand[3]);
  std::byte* to = warp.at(in.operand[0]);
  for_each_lane(mask, [&](int lane) {
    T x = get<T>(a, lane), y = get<T>(b, lane), z = get<T>(c, lane);
    T product = High ? static_cast<T>(MulHigh{}(x, y)) : static_cast<T>(MulLow{}(x, y));
    T sum = product + z, all = sum + static_cast<T>(uses ? (warp.carry >> lane & 1) : 0);
    bool over = sum < product || all < sum;
    set<T>(to, lane, all);
    if (sets) warp.carry = (warp.carry & ~(1u << lane)) | static_cast<uint32_t>(over) << lane;
  });
}

// The sign of the type does not matter where no bits beyond it are looked at.
template <class F32, class F64>
Handler by_width(Decoder& d, Type type, F32 narrow, F64 wide) {
  if (bytes_of(type) == 4) return narrow;
  if (bytes_of(type) == 8) return wide;
  d.unknown();
}

void decode_carry(Decoder& d, bool subtracts, bool uses) {
  bool sets = d.take("cc");
  Type type = d.type();
  d.now.a = static_cast<uint8_t>((uses ? 1 : 0) | (sets ? 2 : 0));
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  d.now.run = subtracts ? by_width(d, type, add_carry<uint32_t, true>, add_carry<uint64_t, true>)
                        : by_width(d, type, add_carry<uint32_t, false>, add_carry<uint64_t, false>);
}

void decode_mad_carry(Decoder& d, Type type, bool uses) {
  bool sets = d.take("cc"), high = d.take("hi");
  if (!high && !d.take("lo")) d.unknown();
  d.now.a = static_cast<uint8_t>((uses ? 1 : 0) | (sets ? 2 : 0));
  d.expect_operands(4);
  d.define(0, type);
  for (size_t i = 1; i < 4; ++i) d.use(i, type);
  if (high && is_signed(type)) d.unknown();
  d.now.run = high ? by_width(d, type, mad_carry<uint32_t, true>, mad_carry<uint64_t, true>)
                   : by_width(d, type, mad_carry<uint32_t, false>, mad_carry<uint64_t, false>);
}

void decode_add_sub(Decoder& d, Type type, bool subtracts) {
  if (d.take("cc")) {
    d.now.a = 2;
    d.now.run = subtracts
                    ? by_width(d, type, add_carry<uint32_t, true>, add_carry<uint64_t, true>)
                    : by_width(d, type, add_carry<uint32_t, false>, add_carry<uint64_t, false>);
  } else if (d.take("sat")) {
    if (type != Type::S32) d.unknown();
    d.now.run = subtracts ? binary<SubSaturated, int32_t, int32_t, int32_t>
                          : binary<AddSaturated, int32_t, int32_t, int32_t>;
  } else {
    d.now.run = subtracts ? pairs_of<Sub>(d, type) : pairs_of<Add>(d, type);
  }
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
}

void decode_mul(Decoder& d, Type type) {
  std::string_view half = d.take_one({"lo", "hi", "wide"});
  if (half.empty()) d.unknown();
  d.expect_operands(3);
  d.define(0, half == "wide" ? widened(d, type) : type);
  d.use(1, type);
  d.use(2, type);
  d.now.run = half == "wide" ? mul_wide(d, type)
              : half == "hi" ? binary_of<MulHigh>(d, type)
                             : binary_of<MulLow>(d, type);
}

void decode_mad(Decoder& d, Type type) {
  for (std::string_view modifier : d.statement().modifiers)
    if (modifier == "cc") return decode_mad_carry(d, type, false);
  std::string_view half = d.take_one({"lo", "hi", "wide"});
  if (half.empty()) d.unknown();
  bool saturates = d.take("sat");
  if (saturates && (half != "hi" || type != Type::S32)) d.unknown();
  Type result = half == "wide" ? widened(d, type) : type;
  d.expect_operands(4);
  d.define(0, result);
  d.use(1, type);
  d.use(2, type);
  d.use(3, result);
  d.now.run = saturates        ? ternary<MadHighSaturated, int32_t, int32_t, int32_t, int32_t>
              : half == "wide" ? mad_wide(d, type)
              : half == "hi"   ? ternary_of<ThenAdd<MulHigh>>(d, type)
                               : ternary_of<ThenAdd<MulLow>>(d, type);
}

void decode_min_max(Decoder& d, Type type, bool largest) {
  bool relu = d.take("relu");
  if (relu && type != Type::S32 && type != Type::S16x2) d.unknown();
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  if (relu && type == Type::S32)
    d.now.run = largest ? binary<Relu<Max>, int32_t, int32_t, int32_t>
                        : binary<Relu<Min>, int32_t, int32_t, int32_t>;
  else if (relu)
    d.now.run = largest ? pairs_of<Relu<Max>>(d, type) : pairs_of<Relu<Min>>(d, type);
  else
    d.now.run = largest ? pairs_of<Max>(d, type) : pairs_of<Min>(d, type);
}

void decode_rem(Decoder& d) {
  Type type = d.type();
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  d.now.run = binary_of<Rem>(d, type);
}

void decode_sad(Decoder& d) {
  Type type = d.type();
  d.expect_operands(4);
  d.define(0, type);
  for (size_t i = 1; i < 4; ++i) d.use(i, type);
  d.now.run = ternary_of<Sad>(d, type);
}

// 24 bits of each operand; the low or the high 32 of the 48-bit product.
template <class T, bool High>
struct Mul24 {
  T operator()(T a, T b) const {
    auto narrow = [](T x) {
      return static_cast<Wide<T>>(static_cast<T>(static_cast<uint32_t>(x) << 8) >> 8);
    };
    return static_cast<T>((narrow(a) * narrow(b)) >> (High ? 16 : 0));
  }
  T operator()(T a, T b, T c) const { return Add{}((*this)(a, b), c); }
};

void decode_24(Decoder& d, bool adds) {
  bool high = d.take("hi");
  if (!high && !d.take("lo")) d.unknown();
  Type type = d.type();
  if (type != Type::U32 && type != Type::S32) d.unknown();
  d.expect_operands(adds ? 4 : 3);
  d.define(0, type);
  for (size_t i = 1; i < (adds ? 4u : 3u); ++i) d.use(i, type);
  bool sign = type == Type::S32;
  using S = int32_t;
  using U = uint32_t;
  if (adds)
    d.now.run =
        sign ? (high ? ternary<Mul24<S, true>, S, S, S, S> : ternary<Mul24<S, false>, S, S, S, S>)
             : (high ? ternary<Mul24<U, true>, U, U, U, U> : ternary<Mul24<U, false>, U, U, U, U>);
  else
    d.now.run = sign ? (high ? binary<Mul24<S, true>, S, S, S> : binary<Mul24<S, false>, S, S, S>)
                     : (high ? binary<Mul24<U, true>, U, U, U> : binary<Mul24<U, false>, U, U, U>);
}

// Dot products of 4 bytes, and of two 16-bit values with two of the bytes. in.a, in.b: signs.
void dot(Warp& warp, const Instruction& in, uint32_t mask) {
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[2]),
                  *c = warp.at(in.operand[3]);
  bool four = in.count == 4;
  auto shift = static_cast<int>(in.immediate);
  fill<uint32_t>(warp.at(in.operand[0]), mask, [=](int lane) {
    uint32_t x = get<uint32_t>(a, lane), y = get<uint32_t>(b, lane) >> shift;
    auto sum = static_cast<int64_t>(get<uint32_t>(c, lane));
    int bits = four ? 8 : 16;
    for (int i = 0; i < in.count; ++i) {
      uint32_t u = x >> (bits * i) & ((1u << bits) - 1), v = y >> (8 * i) & 0xff;
      int64_t left =
          in.a ? static_cast<int32_t>(u << (32 - bits)) >> (32 - bits) : static_cast<int64_t>(u);
      int64_t right = in.b ? static_cast<int8_t>(v) : static_cast<int64_t>(v);
      sum += left * right;
    }
    return static_cast<uint32_t>(sum);
  });
}

void decode_dot(Decoder& d, uint8_t count) {
  d.now.count = count;
  if (count == 2) {
    bool high = d.take("hi");
    if (!high && !d.take("lo")) d.unknown();
    d.now.immediate = high ? 16 : 0;
  }
  d.now.a = d.type() == Type::S32;
  d.now.b = d.type() == Type::S32;
  d.expect_operands(4);
  d.define(0, Type::U32);
  for (size_t i = 1; i < 4; ++i) d.use(i, Type::U32);
  d.now.run = dot;
}

constexpr Mnemonic kMnemonics[] = {
    {"rem", decode_rem},
    {"sad", decode_sad},
    {"mul24", [](Decoder& d) { decode_24(d, false); }},
    {"mad24", [](Decoder& d) { decode_24(d, true); }},
    {"addc", [](Decoder& d) { decode_carry(d, false, true); }},
    {"subc", [](Decoder& d) { decode_carry(d, true, true); }},
    {"madc", [](Decoder& d) { decode_mad_carry(d, d.type(), true); }},
    {"dp4a", [](Decoder& d) { decode_dot(d, 4); }},
    {"dp2a", [](Decoder& d) { decode_dot(d, 2); }},
};

}  // namespace

void decode_integer(Decoder& d, Type type) {
  std::string_view opcode = d.statement().opcode;
  if (opcode == "add" || opcode == "sub") return decode_add_sub(d, type, opcode == "sub");
  if (opcode == "mul") return decode_mul(d, type);
  if (opcode == "mad") return decode_mad(d, type);
  if (opcode == "min" || opcode == "max") return decode_min_max(d, type, opcode == "max");
  if (opcode == "div") {
    d.expect_operands(3);
    d.define(0, type);
    d.use(1, type);
    d.use(2, type);
    d.now.run = binary_of<Div>(d, type);
  } else if (opcode == "neg" || opcode == "abs") {
    d.expect_operands(2);
    d.define(0, type);
    d.use(1, type);
    d.now.run = opcode == "neg" ? signed_of<Neg>(d, type) : signed_of<Abs>(d, type);
  } else {
    d.unknown();
  }
}

std::span<const Mnemonic> integer_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
