// exp, log and tanh of f32 and f64 without calls: range reduction, then a Taylor series by Horner's
// rule, whose coefficients are what they say. One algorithm serves both widths; only the number of
// terms differs. Fast ops of f32 take the hardware's approximations.
#include <cmath>
#include <numbers>

#include "codegen/nvptx_ops_impl.h"
#include "ir/error.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLn2 = std::numbers::ln2, kLog2E = std::numbers::log2e;
// What the two constants exceed those doubles by.
constexpr double kLn2Rest = 0x1.abc9e3b39803fp-56, kLog2ERest = 0x1.777d0ffda0d24p-56;

struct Format {
  int mantissa, bias;
  uint64_t root_half;  // bits of √½
  double rounder;      // added to x, leaves x rounded to an integer in the low bits
  int exp_terms;       // of e^r for |r| <= ½ ln 2: the next is below a quarter of the last place
  int log_terms;       // of log's series in s², s² < 0.0295: likewise
};
constexpr Format kF32 = {23, 127, 0x3F3504F3, 0x1.8p23, 7, 4};
constexpr Format kF64 = {52, 1023, 0x3FE6A09E667F3BCD, 0x1.8p52, 13, 9};

class Functions {
 public:
  Functions(Builder& builder, DType dtype)
      : b_(builder),
        format_(dtype == F32 ? kF32 : kF64),
        real_(dtype == F32 ? b_.ir.getFloatTy() : b_.ir.getDoubleTy()),
        word_(b_.ir.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)))) {}

  Val exp(Val x) {
    x = limited(x, kLn2 * lowest(), kLn2 * highest());
    Whole n = round_whole(x, kLog2E);
    return scaled(series(less_multiple(x, n), 1, 0), n);
  }

  Val exp2(Val x) {
    x = limited(x, lowest(), highest());
    Whole n = round_whole(x, 1);
    return scaled(series(b_.ir.CreateFSub(x, n.real), kLn2, 0), n);
  }

  Val log(Val x) {
    Logarithm l = take_apart(x);
    auto [high, rest] = split(kLn2, kLn2Rest);
    Val small = b_.ir.CreateFAdd(l.f, fma(l.e, number(rest), l.tail));
    return with_special_logs(x, fma(l.e, number(high), small));
  }

  Val log2(Val x) {
    Logarithm l = take_apart(x);
    auto [high, rest] = split(kLog2E, kLog2ERest);
    Val small = fma(l.tail, number(high), b_.ir.CreateFMul(l.f, number(rest)));
    return with_special_logs(x, b_.ir.CreateFAdd(l.e, fma(l.f, number(high), small)));
  }

  // (e^y − 1) / (e^y + 1) for y = 2|x|, by way of e^y − 1, which is accurate near 0.
  Val tanh(Val x, bool fast) {
    auto& ir = b_.ir;
    Val size = b_.call(I::fabs, {x}, {real_});
    const double rounds_to_one = (format_.mantissa + 4) * kLn2;
    Val y = limited(ir.CreateFAdd(size, size), 0, rounds_to_one);
    Whole n = round_whole(y, kLog2E);
    Val r = less_multiple(y, n);
    Val tail = ir.CreateFMul(ir.CreateFMul(r, r), series(r, 1, 2));
    Val power = power_of_two(integer_of(n));
    Val e = fma(power, ir.CreateFAdd(r, tail), ir.CreateFSub(power, number(1)));
    Val quotient = binary(b_, OpCode::Div, real_->isFloatTy() ? F32 : F64, e,
                          ir.CreateFAdd(e, number(2)), fast);
    return b_.call(I::copysign, {quotient, x}, {real_});
  }

 private:
  // x rounded to an integer, by way of the sum with `rounder`.
  struct Whole {
    Val sum, real;
  };
  // x = 2^e · (1 + f) with √½ <= 1 + f < √2, and log(1 + f) = f + tail.
  struct Logarithm {
    Val e, f, tail;
  };

  Val number(double value) { return llvm::ConstantFP::get(real_, value); }
  Val integer(uint64_t value) { return llvm::ConstantInt::get(word_, value); }
  Val mantissa_bits() { return integer(static_cast<uint64_t>(format_.mantissa)); }
  Val fma(Val x, Val y, Val z) { return b_.call(I::fma, {x, y, z}, {real_}); }

  // Outside of these, 2^x is 0 and infinity.
  double lowest() const { return -(format_.bias + format_.mantissa + 2); }
  double highest() const { return format_.bias + 2; }

  // A constant in two parts, of the format's precision each.
  std::pair<double, double> split(double value, double rest) const {
    if (real_->isDoubleTy()) return {value, rest};
    const double high = static_cast<float>(value);
    return {high, value - high};
  }

  // A NaN stays.
  Val limited(Val x, double low, double high) {
    auto& ir = b_.ir;
    x = ir.CreateSelect(ir.CreateFCmpOLT(x, number(low)), number(low), x);
    return ir.CreateSelect(ir.CreateFCmpOGT(x, number(high)), number(high), x);
  }

  // x · factor, rounded to an integer.
  Whole round_whole(Val x, double factor) {
    Val rounder = number(format_.rounder);
    Val sum = factor == 1 ? b_.ir.CreateFAdd(x, rounder) : fma(x, number(factor), rounder);
    return {sum, b_.ir.CreateFSub(sum, rounder)};
  }
  Val integer_of(const Whole& n) {
    auto& ir = b_.ir;
    return ir.CreateSub(ir.CreateBitCast(n.sum, word_),
                        ir.CreateBitCast(number(format_.rounder), word_));
  }

  // x − n · ln 2.
  Val less_multiple(Val x, const Whole& n) {
    auto [high, rest] = split(kLn2, kLn2Rest);
    return fma(n.real, number(-rest), fma(n.real, number(-high), x));
  }

  // Σ factor^k · x^(k − from) / k! over k from `from` on: e^(factor·x) without its first terms.
  Val series(Val x, double factor, int from) {
    auto coefficient = [&](int k) { return number(std::pow(factor, k) / std::tgamma(k + 1.0)); };
    Val sum = coefficient(format_.exp_terms);
    for (int k = format_.exp_terms - 1; k >= from; --k) sum = fma(sum, x, coefficient(k));
    return sum;
  }

  Val power_of_two(Val exponent) {
    Val biased = b_.ir.CreateAdd(exponent, integer(static_cast<uint64_t>(format_.bias)));
    return b_.ir.CreateBitCast(b_.ir.CreateShl(biased, mantissa_bits()), real_);
  }

  // p · 2^n, rounded once where the result is subnormal; in two steps, since 2^n itself may not be
  // a normal number. n is halved by two shifts: LLVM's strength reduction takes time quadratic in
  // the number of differences of two variables, and there is one an element.
  Val scaled(Val p, const Whole& n) {
    auto& ir = b_.ir;
    Val whole = integer_of(n);
    Val half = ir.CreateAShr(whole, integer(1));
    Val rest = ir.CreateAShr(ir.CreateAdd(whole, integer(1)), integer(1));
    return ir.CreateFMul(ir.CreateFMul(p, power_of_two(half)), power_of_two(rest));
  }

  Logarithm take_apart(Val x) {
    auto& ir = b_.ir;
    Val is_tiny = ir.CreateFCmpOLT(x, number(std::ldexp(1.0, 1 - format_.bias)));
    Val normal = ir.CreateFMul(x, number(std::ldexp(1.0, format_.mantissa)));
    Val bits = ir.CreateBitCast(ir.CreateSelect(is_tiny, normal, x), word_);
    Val e = ir.CreateAShr(ir.CreateSub(bits, integer(format_.root_half)), mantissa_bits());
    Val m = ir.CreateBitCast(ir.CreateSub(bits, ir.CreateShl(e, mantissa_bits())), real_);
    e = ir.CreateSub(e, ir.CreateSelect(is_tiny, mantissa_bits(), integer(0)));
    Val f = ir.CreateFSub(m, number(1));
    return {ir.CreateSIToFP(e, real_), f, log_tail(f)};
  }

  // With s = f / (2 + f): log(1 + f) = 2 artanh s = f − f²/2 + s · (f²/2 + Σ 2 s^2k / (2k + 1)).
  // The large terms are exact or nearly so; what the division rounds matters little.
  Val log_tail(Val f) {
    auto& ir = b_.ir;
    Val s = ir.CreateFDiv(f, ir.CreateFAdd(f, number(2)));
    Val square = ir.CreateFMul(s, s);
    auto coefficient = [&](int k) { return number(2.0 / (2 * k + 1)); };
    Val sum = coefficient(format_.log_terms);
    for (int k = format_.log_terms - 1; k >= 1; --k) sum = fma(sum, square, coefficient(k));
    Val half_square = ir.CreateFMul(ir.CreateFMul(f, number(0.5)), f);
    return fma(s, fma(sum, square, half_square), ir.CreateFNeg(half_square));
  }

  Val with_special_logs(Val x, Val result) {
    auto& ir = b_.ir;
    result = ir.CreateSelect(ir.CreateFCmpOEQ(x, number(kInfinity)), x, result);
    result = ir.CreateSelect(ir.CreateFCmpOEQ(x, number(0)), number(-kInfinity), result);
    // Below zero, and NaN.
    Val nan = llvm::ConstantFP::getNaN(real_);
    return ir.CreateSelect(ir.CreateFCmpULT(x, number(0)), nan, result);
  }

  Builder& b_;
  const Format& format_;
  llvm::Type* real_;
  llvm::IntegerType* word_;
};

// Each of them has the right value at 0, at infinities and for NaN.
Val approximate(Builder& b, OpCode code, Val x) {
  auto& ir = b.ir;
  auto number = [&](double value) { return llvm::ConstantFP::get(ir.getFloatTy(), value); };
  auto exp2 = [&](Val y) { return b.call(I::nvvm_ex2_approx_ftz, {y}, {ir.getFloatTy()}); };
  auto log2 = [&](Val y) { return b.call(I::nvvm_lg2_approx_ftz_f, {y}); };
  switch (code) {
    case OpCode::Exp: return exp2(ir.CreateFMul(x, number(kLog2E)));
    case OpCode::Exp2: return exp2(x);
    case OpCode::Log: return ir.CreateFMul(log2(x), number(kLn2));
    case OpCode::Log2: return log2(x);
    case OpCode::Sqrt: return b.call(I::nvvm_sqrt_approx_ftz_f, {x});
    case OpCode::Rsqrt: return b.call(I::nvvm_rsqrt_approx_ftz_f, {x});
    default: return Functions(b, F32).tanh(x, true);
  }
}

}  // namespace

Val math(Builder& b, OpCode code, DType dtype, Val x, bool fast) {
  llvm::IRBuilderBase::FastMathFlagGuard guard(b.ir);
  b.ir.clearFastMathFlags();  // the sums with `rounder` must stay
  if (fast && dtype == F32) return approximate(b, code, x);
  Functions f(b, dtype);
  auto root = [&] { return b.call(I::sqrt, {x}, {x->getType()}); };
  switch (code) {
    case OpCode::Exp: return f.exp(x);
    case OpCode::Exp2: return f.exp2(x);
    case OpCode::Log: return f.log(x);
    case OpCode::Log2: return f.log2(x);
    case OpCode::Tanh: return f.tanh(x, false);
    case OpCode::Sqrt: return root();
    case OpCode::Rsqrt: return b.ir.CreateFDiv(llvm::ConstantFP::get(x->getType(), 1.0), root());
    default: throw InternalError("no such function on a GPU");
  }
}

}  // namespace kiln::nvptx
