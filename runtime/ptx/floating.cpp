// Arithmetic of f32 and f64.
#include <cfenv>

#include "runtime/ptx/arithmetic.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

struct Add {
  template <class T>
  T operator()(T a, T b) const {
    return a + b;
  }
};
struct Sub {
  template <class T>
  T operator()(T a, T b) const {
    return a - b;
  }
};
struct Mul {
  template <class T>
  T operator()(T a, T b) const {
    return a * b;
  }
};
struct Div {
  template <class T>
  T operator()(T a, T b) const {
    return a / b;
  }
};
// Beyond 2^126 the reciprocal that approximate division multiplies with is 0.
struct DivApprox {
  float operator()(float a, float b) const {
    float magnitude = std::fabs(b);
    if (magnitude > 0x1p126f && magnitude <= std::numeric_limits<float>::max())
      b = std::copysign(std::numeric_limits<float>::infinity(), b);
    return a / b;
  }
};
struct Fma {
  float operator()(float a, float b, float c) const { return fused(a, b, c); }
  double operator()(double a, double b, double c) const { return std::fma(a, b, c); }
};

// One operation of f32 with its modifiers.
template <class F, bool Flushes, bool Saturates>
struct Single {
  template <class... T>
  float operator()(T... x) const {
    float result = canonical(F{}((Flushes ? flush(x) : x)...));
    if (Flushes) result = flush(result);
    return Saturates ? saturate(result) : result;
  }
};
template <class F>
struct Double {
  template <class... T>
  double operator()(T... x) const {
    return canonical(F{}(x...));
  }
};

template <class F>
Handler single_binary(bool flushes, bool saturates) {
  using T = float;
  if (flushes)
    return saturates ? binary<Single<F, true, true>, T, T, T>
                     : binary<Single<F, true, false>, T, T, T>;
  return saturates ? binary<Single<F, false, true>, T, T, T>
                   : binary<Single<F, false, false>, T, T, T>;
}

Handler single_fma(bool flushes, bool saturates) {
  using T = float;
  if (flushes)
    return saturates ? ternary<Single<Fma, true, true>, T, T, T, T>
                     : ternary<Single<Fma, true, false>, T, T, T, T>;
  return saturates ? ternary<Single<Fma, false, true>, T, T, T, T>
                   : ternary<Single<Fma, false, false>, T, T, T, T>;
}

// The other rounding modes, in the processor's. in.a: the mode, in.b: bit 0 ftz, bit 1 sat.
enum class Op : uint8_t { Add, Sub, Mul, Div, Fma };

template <class T, Op op>
void rounded(Warp& warp, const Instruction& in, uint32_t mask) {
  constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  bool flushes = in.b & 1, saturates = in.b & 2;
  auto operand = [&](int index, int lane) {
    T value = get<T>(warp.at(in.operand[index]), lane);
    if constexpr (sizeof(T) == 4)
      if (flushes) value = flush(value);
    return value;
  };
  std::byte* to = warp.at(in.operand[0]);
  std::fesetround(kModes[in.a]);
  for_each_lane(mask, [&](int lane) {
    // Volatile: what is computed between the changes of the mode stays there.
    volatile T a = operand(1, lane), b = operand(2, lane), c = T(0);
    if (op == Op::Fma) c = operand(3, lane);
    volatile T result;
    switch (op) {
      case Op::Add: result = a + b; break;
      case Op::Sub: result = a - b; break;
      case Op::Mul: result = a * b; break;
      case Op::Div: result = a / b; break;
      case Op::Fma: result = std::fma(T(a), T(b), T(c)); break;
    }
    T value = canonical(T(result));
    if constexpr (sizeof(T) == 4)
      if (flushes) value = flush(value);
    if (saturates) value = saturate(value);
    set<T>(to, lane, value);
  });
  std::fesetround(FE_TONEAREST);
}

template <Op op>
Handler rounded_of(Type type) {
  return type == Type::F32 ? rounded<float, op> : rounded<double, op>;
}

// in.a: bit 0 the largest, bit 1 NaN wins, bit 2 xorsign.abs, bit 3 ftz; in.count operands.
template <class T>
void extreme(Warp& warp, const Instruction& in, uint32_t mask) {
  bool most = in.a & 1, nan = in.a & 2, xorsign = in.a & 4, flushes = in.a & 8;
  const std::byte* x[3] = {warp.at(in.operand[1]), warp.at(in.operand[2]),
                           warp.at(in.operand[in.count])};
  auto pick = [=](T a, T b) {
    if (nan && (a != a || b != b)) return canonical(std::numeric_limits<T>::quiet_NaN());
    bool negative = std::signbit(a) != std::signbit(b);
    if (xorsign) a = std::fabs(a), b = std::fabs(b);
    T result = most ? larger(a, b) : smaller(a, b);
    return xorsign ? std::copysign(result, negative ? T(-1) : T(1)) : result;
  };
  fill<T>(warp.at(in.operand[0]), mask, [=](int lane) {
    auto value = [&](int i) {
      T v = get<T>(x[i], lane);
      if constexpr (sizeof(T) == 4)
        if (flushes) v = flush(v);
      return v;
    };
    T result = pick(value(0), value(1));
    return in.count == 3 ? pick(result, value(2)) : result;
  });
}

// max.f32 and max.ftz.f32 without more, in a loop that vectorises.
template <bool Most, bool Flushes>
struct PlainExtreme {
  float operator()(float a, float b) const {
    if (Flushes) a = flush(a), b = flush(b);
    auto x = std::bit_cast<int32_t>(a), y = std::bit_cast<int32_t>(b);
    // Floats in order as integers, −0 below +0.
    int32_t i = x ^ static_cast<int32_t>(static_cast<uint32_t>(x >> 31) >> 1);
    int32_t j = y ^ static_cast<int32_t>(static_cast<uint32_t>(y >> 31) >> 1);
    int32_t better = (Most ? i > j : i < j) ? x : y;
    better = b != b ? x : better;
    better = a != a ? y : better;
    better = a != a && b != b ? static_cast<int32_t>(kNaN32) : better;
    return std::bit_cast<float>(better);
  }
};

template <class T, bool Negates>
struct Sign {
  T operator()(T bits) const {
    constexpr T kSign = T{1} << (8 * sizeof(T) - 1);
    return Negates ? bits ^ kSign : bits & ~kSign;
  }
};
template <bool Negates>
struct SignFlushed {
  float operator()(float x) const { return Negates ? -flush(x) : std::fabs(flush(x)); }
};

// Two f32 in 64 bits.
template <class F, bool Flushes>
struct Twice {
  template <class... T>
  uint64_t operator()(T... x) const {
    auto half = [](uint64_t bits, int shift) {
      return std::bit_cast<float>(static_cast<uint32_t>(bits >> shift));
    };
    using One = Single<F, Flushes, false>;
    auto low = std::bit_cast<uint32_t>(One{}(half(x, 0)...));
    auto high = std::bit_cast<uint32_t>(One{}(half(x, 32)...));
    return low | uint64_t{high} << 32;
  }
};
template <class F>
Handler twice_binary(bool flushes) {
  using T = uint64_t;
  return flushes ? binary<Twice<F, true>, T, T, T> : binary<Twice<F, false>, T, T, T>;
}

void use_floats(Decoder& d, Type type, size_t count) {
  d.expect_operands(count);
  d.define(0, type);
  for (size_t i = 1; i < count; ++i) d.use(i, type);
}

void decode_pair(Decoder& d, std::string_view opcode) {
  d.take("rn");
  bool flushes = d.take("ftz");
  using T = uint64_t;
  use_floats(d, Type::F32x2, opcode == "fma" ? 4 : 3);
  if (opcode == "add")
    d.now.run = twice_binary<Add>(flushes);
  else if (opcode == "sub")
    d.now.run = twice_binary<Sub>(flushes);
  else if (opcode == "mul")
    d.now.run = twice_binary<Mul>(flushes);
  else if (opcode == "fma")
    d.now.run =
        flushes ? ternary<Twice<Fma, true>, T, T, T, T> : ternary<Twice<Fma, false>, T, T, T, T>;
  else
    d.unknown();
}

void decode_extreme(Decoder& d, Type type, bool most) {
  bool nan = d.take("NaN"), xorsign = d.take("xorsign"), flushes = d.take("ftz");
  if (xorsign && !d.take("abs")) d.unknown();
  d.now.count = d.syntax_count() == 4 ? 3 : 2;
  use_floats(d, type, d.now.count + 1u);
  d.now.a = static_cast<uint8_t>(most | nan << 1 | xorsign << 2 | flushes << 3);
  using T = float;
  if (type == Type::F64)
    d.now.run = extreme<double>;
  else if (nan || xorsign || d.now.count == 3)
    d.now.run = extreme<float>;
  else if (most)
    d.now.run = flushes ? binary<PlainExtreme<true, true>, T, T, T>
                        : binary<PlainExtreme<true, false>, T, T, T>;
  else
    d.now.run = flushes ? binary<PlainExtreme<false, true>, T, T, T>
                        : binary<PlainExtreme<false, false>, T, T, T>;
}

void decode_sign(Decoder& d, Type type, bool negates) {
  bool flushes = d.take("ftz");
  use_floats(d, type, 2);
  using S = uint32_t;
  using W = uint64_t;
  if (type == Type::F64)
    d.now.run = negates ? unary<Sign<W, true>, W, W> : unary<Sign<W, false>, W, W>;
  else if (flushes)
    d.now.run =
        negates ? unary<SignFlushed<true>, float, float> : unary<SignFlushed<false>, float, float>;
  else
    d.now.run = negates ? unary<Sign<S, true>, S, S> : unary<Sign<S, false>, S, S>;
}

void decode_div(Decoder& d, Type type, uint8_t rounding) {
  d.take("full");  // within 2 ulp: rounded to nearest is
  bool approximate = d.take("approx"), flushes = d.take("ftz");
  use_floats(d, type, 3);
  d.now.a = rounding;
  d.now.b = flushes;
  if (approximate && type == Type::F32)
    d.now.run = single_binary<DivApprox>(flushes, false);
  else if (rounding != 0)
    d.now.run = rounded_of<Op::Div>(type);
  else if (type == Type::F32)
    d.now.run = single_binary<Div>(flushes, false);
  else
    d.now.run = binary<Double<Div>, double, double, double>;
}

}  // namespace

void decode_float(Decoder& d, Type type) {
  std::string_view opcode = d.statement().opcode;
  if (type == Type::F32x2) return decode_pair(d, opcode);
  if (opcode == "min" || opcode == "max") return decode_extreme(d, type, opcode == "max");
  if (opcode == "neg" || opcode == "abs") return decode_sign(d, type, opcode == "neg");
  std::string_view mode = d.take_one({"rn", "rz", "rm", "rp"});
  auto rounding = static_cast<uint8_t>(mode == "rz" ? 1 : mode == "rm" ? 2 : mode == "rp" ? 3 : 0);
  if (opcode == "div") return decode_div(d, type, rounding);
  bool flushes = d.take("ftz"), saturates = d.take("sat");
  if (type == Type::F64 && (flushes || saturates)) d.unknown();
  bool fma = opcode == "fma" || opcode == "mad";
  use_floats(d, type, fma ? 4 : 3);
  d.now.a = rounding;
  d.now.b = static_cast<uint8_t>(flushes | saturates << 1);
  using D = double;
  if (fma)
    d.now.run = rounding != 0       ? rounded_of<Op::Fma>(type)
                : type == Type::F32 ? single_fma(flushes, saturates)
                                    : ternary<Double<Fma>, D, D, D, D>;
  else if (opcode == "add")
    d.now.run = rounding != 0       ? rounded_of<Op::Add>(type)
                : type == Type::F32 ? single_binary<Add>(flushes, saturates)
                                    : binary<Double<Add>, D, D, D>;
  else if (opcode == "sub")
    d.now.run = rounding != 0       ? rounded_of<Op::Sub>(type)
                : type == Type::F32 ? single_binary<Sub>(flushes, saturates)
                                    : binary<Double<Sub>, D, D, D>;
  else if (opcode == "mul")
    d.now.run = rounding != 0       ? rounded_of<Op::Mul>(type)
                : type == Type::F32 ? single_binary<Mul>(flushes, saturates)
                                    : binary<Double<Mul>, D, D, D>;
  else
    d.unknown();
}

}  // namespace kiln::ptx
