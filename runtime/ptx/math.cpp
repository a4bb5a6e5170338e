// Functions of one float: rcp, sqrt, rsqrt, ex2, lg2, sin, cos, tanh; copysign. Approximate ones
// are computed in f64 and rounded, which is within their documented error.
#include <cfenv>
#include <cmath>

#include "runtime/ptx/decoder.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

struct Reciprocal {
  double operator()(double x) const { return 1 / x; }
};
struct Root {
  double operator()(double x) const { return std::sqrt(x); }
};
struct ReciprocalRoot {
  double operator()(double x) const { return 1 / std::sqrt(x); }
};
struct Exp2 {
  double operator()(double x) const { return std::exp2(x); }
};
struct Log2 {
  double operator()(double x) const { return std::log2(x); }
};
struct Sine {
  double operator()(double x) const { return std::sin(x); }
};
struct Cosine {
  double operator()(double x) const { return std::cos(x); }
};
struct Tanh {
  double operator()(double x) const { return std::tanh(x); }
};

template <class F, bool Flushes>
struct Rounded {
  float operator()(float x) const {
    if (Flushes) x = flush(x);
    float result = canonical(static_cast<float>(F{}(static_cast<double>(x))));
    return Flushes ? flush(result) : result;
  }
  double operator()(double x) const { return canonical(F{}(x)); }
  Half operator()(Half x) const {
    return to_half(static_cast<float>(F{}(static_cast<double>(to_float(x)))));
  }
  BFloat operator()(BFloat x) const {
    return to_bfloat(static_cast<float>(F{}(static_cast<double>(to_float(x)))));
  }
};
template <class F, class T>
struct Pair {
  uint32_t operator()(uint32_t x) const {
    uint32_t low = Rounded<F, false>{}(T{static_cast<uint16_t>(x)}).bits;
    uint32_t high = Rounded<F, false>{}(T{static_cast<uint16_t>(x >> 16)}).bits;
    return low | high << 16;
  }
};

template <class F, class T>
void in_mode(Warp& warp, const Instruction& in, uint32_t mask) {
  constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  const std::byte* a = warp.at(in.operand[1]);
  std::fesetround(kModes[in.a]);
  for_each_lane(mask, [&](int lane) {
    volatile T x = get<T>(a, lane);
    if constexpr (sizeof(T) == 4)
      if (in.b) x = flush(T(x));
    volatile T result;
    if constexpr (std::is_same_v<F, Root>)
      result = std::sqrt(T(x));
    else
      result = T(1) / x;
    T value = canonical(T(result));
    if constexpr (sizeof(T) == 4)
      if (in.b) value = flush(value);
    set<T>(warp.at(in.operand[0]), lane, value);
  });
  std::fesetround(FE_TONEAREST);
}

template <class F>
Handler function_of(Decoder& d, Type type, bool flushes) {
  switch (type) {
    case Type::F32:
      return flushes ? unary<Rounded<F, true>, float, float>
                     : unary<Rounded<F, false>, float, float>;
    case Type::F64: return unary<Rounded<F, false>, double, double>;
    case Type::F16: return unary<Rounded<F, false>, Half, Half>;
    case Type::BF16: return unary<Rounded<F, false>, BFloat, BFloat>;
    case Type::F16x2: return unary<Pair<F, Half>, uint32_t, uint32_t>;
    case Type::BF16x2: return unary<Pair<F, BFloat>, uint32_t, uint32_t>;
    default: d.unknown();
  }
}

// Functions that exist as approximations alone. Wide: also for f64; Half: also for 16 bits.
template <class F, bool Wide, bool Halves>
void decode_approximate(Decoder& d) {
  if (!d.take("approx")) d.unknown();
  bool flushes = d.take("ftz");
  Type type = d.type();
  if (type == Type::F64 ? !Wide : type != Type::F32 && !Halves) d.unknown();
  d.expect_operands(2);
  d.define(0, type);
  d.use(1, type);
  d.now.run = function_of<F>(d, type, flushes);
}

// rcp and sqrt: approximate or in a rounding mode.
template <class F>
void decode_rounded(Decoder& d) {
  std::string_view mode = d.take_one({"approx", "rn", "rz", "rm", "rp"});
  if (mode.empty()) d.unknown();
  bool flushes = d.take("ftz");
  Type type = d.type();
  if (type != Type::F32 && type != Type::F64) d.unknown();
  d.expect_operands(2);
  d.define(0, type);
  d.use(1, type);
  d.now.a = mode == "rz" ? 1 : mode == "rm" ? 2 : mode == "rp" ? 3 : 0;
  d.now.b = flushes;
  if (mode == "approx")
    d.now.run = function_of<F>(d, type, flushes);
  else
    d.now.run = type == Type::F32 ? in_mode<F, float> : in_mode<F, double>;
}

template <class T>
struct CopySign {
  T operator()(T sign, T value) const {  // the sign of the first, the rest of the second
    constexpr T kSign = T{1} << (8 * sizeof(T) - 1);
    return (sign & kSign) | (value & ~kSign);
  }
};

void decode_copysign(Decoder& d) {
  Type type = d.type();
  d.expect_operands(3);
  d.define(0, type);
  d.use(1, type);
  d.use(2, type);
  if (type == Type::F32)
    d.now.run = binary<CopySign<uint32_t>, uint32_t, uint32_t, uint32_t>;
  else if (type == Type::F64)
    d.now.run = binary<CopySign<uint64_t>, uint64_t, uint64_t, uint64_t>;
  else
    d.unknown();
}

constexpr Mnemonic kMnemonics[] = {
    {"rcp", decode_rounded<Reciprocal>},
    {"sqrt", decode_rounded<Root>},
    {"rsqrt", decode_approximate<ReciprocalRoot, true, false>},
    {"ex2", decode_approximate<Exp2, false, true>},
    {"lg2", decode_approximate<Log2, false, false>},
    {"sin", decode_approximate<Sine, false, false>},
    {"cos", decode_approximate<Cosine, false, false>},
    {"tanh", decode_approximate<Tanh, false, true>},
    {"copysign", decode_copysign},
};

}  // namespace

std::span<const Mnemonic> math_mnemonics() {
  return kMnemonics;
}

}  // namespace kiln::ptx
