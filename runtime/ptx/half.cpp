// Arithmetic of f16 and bf16, single and in pairs: in f32, which is wide enough that rounding twice
// is as rounding once; fused in f64 rounded to odd.
#include "runtime/ptx/arithmetic.h"
#include "runtime/ptx/lanes.h"

namespace kiln::ptx {
namespace {

enum class Op : uint8_t { Add, Sub, Mul, Fma, Min, Max, Neg, Abs };

// Instruction::b.
constexpr uint8_t kFlushes = 1, kSaturates = 2, kRelu = 4, kNaN = 8, kXorSign = 16;

Half narrow(float x, Half) {
  return to_half(x);
}
BFloat narrow(float x, BFloat) {
  return to_bfloat(x);
}
Half narrow(double x, Half) {
  return half_of(x);
}
BFloat narrow(double x, BFloat) {
  return bfloat_of(x);
}
Half flushed(Half x) {
  return (x.bits & 0x7c00) == 0 ? Half{static_cast<uint16_t>(x.bits & 0x8000)} : x;
}
BFloat flushed(BFloat x) {
  return (x.bits & 0x7f80) == 0 ? BFloat{static_cast<uint16_t>(x.bits & 0x8000)} : x;
}

template <class T, Op op>
T compute(uint8_t flags, T x, T y, T z) {
  if (flags & kFlushes) x = flushed(x), y = flushed(y), z = flushed(z);
  if constexpr (op == Op::Neg) return {static_cast<uint16_t>(x.bits ^ 0x8000)};
  if constexpr (op == Op::Abs) return {static_cast<uint16_t>(x.bits & 0x7fff)};
  float a = to_float(x), b = to_float(y), c = to_float(z);
  T result{};
  if constexpr (op == Op::Add) result = narrow(a + b, T{});
  if constexpr (op == Op::Sub) result = narrow(a - b, T{});
  if constexpr (op == Op::Mul) result = narrow(a * b, T{});
  if constexpr (op == Op::Fma)
    result = narrow(add_to_odd(static_cast<double>(a) * static_cast<double>(b), c), T{});
  if constexpr (op == Op::Min || op == Op::Max) {
    bool negative = std::signbit(a) != std::signbit(b);
    if ((flags & kNaN) && (a != a || b != b)) return {kNaN16};
    if (flags & kXorSign) a = std::fabs(a), b = std::fabs(b);
    result = narrow(op == Op::Min ? smaller(a, b) : larger(a, b), T{});
    if ((flags & kXorSign) && negative) result.bits |= 0x8000;
  }
  if (flags & kFlushes) result = flushed(result);
  if (flags & kSaturates) result = narrow(saturate(to_float(result)), T{});
  if ((flags & kRelu) && to_float(result) <= 0) result.bits = 0;
  return result;
}

template <class T, Op op, bool Pairs>
void half_arithmetic(Warp& warp, const Instruction& in, uint32_t mask) {
  uint32_t last = in.operands - 1;
  const std::byte *a = warp.at(in.operand[1]), *b = warp.at(in.operand[std::min(2u, last)]),
                  *c = warp.at(in.operand[last]);
  uint8_t flags = in.b;
  fill<uint32_t>(warp.at(in.operand[0]), mask, [=](int lane) {
    uint32_t x = get<uint32_t>(a, lane), y = get<uint32_t>(b, lane), z = get<uint32_t>(c, lane);
    auto half = [&](int shift) -> uint32_t {
      auto part = [&](uint32_t bits) { return T{static_cast<uint16_t>(bits >> shift)}; };
      return compute<T, op>(flags, part(x), part(y), part(z)).bits;
    };
    return Pairs ? half(0) | half(16) << 16 : half(0);
  });
}

template <Op op>
Handler of_type(Decoder& d, Type type) {
  switch (type) {
    case Type::F16: return half_arithmetic<Half, op, false>;
    case Type::BF16: return half_arithmetic<BFloat, op, false>;
    case Type::F16x2: return half_arithmetic<Half, op, true>;
    case Type::BF16x2: return half_arithmetic<BFloat, op, true>;
    default: d.unknown();
  }
}

}  // namespace

void decode_half(Decoder& d, Type type) {
  std::string_view opcode = d.statement().opcode;
  size_t operands = opcode == "fma" ? 4 : opcode == "neg" || opcode == "abs" ? 2 : 3;
  bool extreme = opcode == "min" || opcode == "max";
  if (!extreme) d.take("rn");
  if (d.take("ftz")) d.now.b |= kFlushes;
  if (operands > 2 && !extreme && d.take("sat")) d.now.b |= kSaturates;
  if (opcode == "fma" && d.take("relu")) d.now.b |= kRelu;
  if (extreme && d.take("NaN")) d.now.b |= kNaN;
  if (extreme && d.take("xorsign")) {
    if (!d.take("abs")) d.unknown();
    d.now.b |= kXorSign;
  }
  d.expect_operands(operands);
  d.define(0, type);
  for (size_t i = 1; i < operands; ++i) d.use(i, type);
  if (opcode == "add")
    d.now.run = of_type<Op::Add>(d, type);
  else if (opcode == "sub")
    d.now.run = of_type<Op::Sub>(d, type);
  else if (opcode == "mul")
    d.now.run = of_type<Op::Mul>(d, type);
  else if (opcode == "fma")
    d.now.run = of_type<Op::Fma>(d, type);
  else if (opcode == "min")
    d.now.run = of_type<Op::Min>(d, type);
  else if (opcode == "max")
    d.now.run = of_type<Op::Max>(d, type);
  else if (opcode == "neg")
    d.now.run = of_type<Op::Neg>(d, type);
  else if (opcode == "abs")
    d.now.run = of_type<Op::Abs>(d, type);
  else
    d.unknown();
}

}  // namespace kiln::ptx
