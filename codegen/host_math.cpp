// exp, log and tanh of f32 vectors without library calls: range reduction by magic-number rounding
// (no CPU feature needed) and a polynomial by Horner's rule.
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <cmath>
#include <initializer_list>
#include <limits>

#include "codegen/host_ops_impl.h"

namespace kiln::host {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Adding it to |x| < 2^22 leaves x rounded to an integer in the low bits.
constexpr float kRounder = 0x1.8p23f;
// ln 2 in two parts; the first has few bits, so that n·kLn2High is exact.
constexpr double kLn2High = 0.693359375, kLn2Low = -2.12194440e-4;

Val number(Builder& b, Val like, double value) {
  return b.real(like->getType(), value);
}

// c0 + c1·x + c2·x² + …
Val polynomial(Builder& b, Val x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.end() - 1;
  Val sum = number(b, x, *c);
  while (c-- != coefficients.begin()) sum = b.multiply_add(sum, x, number(b, x, *c));
  return sum;
}

llvm::Type* word_type(Builder& b, Val like) {
  return Builder::widen(b.ir.getInt32Ty(), Builder::lanes_of(like));
}

// x within [low, high]; a NaN stays.
Val limited(Builder& b, Val x, double low, double high) {
  auto& ir = b.ir;
  Val l = number(b, x, low), h = number(b, x, high);
  x = ir.CreateSelect(ir.CreateFCmpOLT(x, l), l, x);
  return ir.CreateSelect(ir.CreateFCmpOGT(x, h), h, x);
}

struct Whole {
  Val real;     // x rounded to an integer
  Val shifted;  // the same plus kRounder
};

Whole round_whole(Builder& b, Val x) {
  llvm::IRBuilderBase::FastMathFlagGuard guard(b.ir);
  b.ir.clearFastMathFlags();
  Val shifted = b.ir.CreateFAdd(x, number(b, x, kRounder));
  return {b.ir.CreateFSub(shifted, number(b, x, kRounder)), shifted};
}

// p · 2^n for an integer n with |n| <= 160, rounded once where the result is subnormal.
Val scale(Builder& b, Val p, const Whole& n) {
  auto& ir = b.ir;
  llvm::Type* word = word_type(b, p);
  const int lanes = Builder::lanes_of(p);
  if (b.target.avx512 && lanes == 16) {
    Val all = ir.getInt16(0xFFFF), current_rounding = ir.getInt32(4);
    return ir.CreateIntrinsic(
        llvm::Intrinsic::x86_avx512_mask_scalef_ps_512, {},
        {p, n.real, llvm::PoisonValue::get(p->getType()), all, current_rounding});
  }
  // In two steps, since 2^n itself may not be a normal number.
  Val integer = ir.CreateSub(ir.CreateBitCast(n.shifted, word),
                             b.integer(word, std::bit_cast<uint32_t>(kRounder)));
  Val half = ir.CreateAShr(integer, b.integer(word, 1));
  auto power = [&](Val exponent) {
    Val biased = ir.CreateAdd(exponent, b.integer(word, 127));
    return ir.CreateBitCast(ir.CreateShl(biased, b.integer(word, 23)), p->getType());
  };
  return ir.CreateFMul(ir.CreateFMul(p, power(half)), power(ir.CreateSub(integer, half)));
}

// 2^f for |f| <= 1/2. Minimax: relative error 8e-8 if fast, else 3e-9.
Val exp2_fraction(Builder& b, Val f, bool fast) {
  if (fast)
    return polynomial(b, f,
                      {1.00000007165, 0.693146967065, 0.240221197239, 0.0555071327391,
                       0.00967554133308, 0.00132764718546});
  return polynomial(b, f,
                    {1.0, 0.693147214968, 0.240226527829, 0.0555031055101, 0.00961769297514,
                     0.00134066439009, 0.00015594677444});
}

// x = 2^e · (1 + f) with √½ <= 1 + f < √2, and what log of special values is.
struct Logarithm {
  Val e, f;
  Val input;
};

Logarithm take_apart(Builder& b, Val x) {
  auto& ir = b.ir;
  llvm::Type* word = word_type(b, x);
  auto bits = [&](uint64_t value) { return b.integer(word, value); };
  constexpr double kSmallestNormal = 0x1p-126;
  Val tiny = ir.CreateFCmpOLT(x, number(b, x, kSmallestNormal));
  Val scaled = ir.CreateSelect(tiny, ir.CreateFMul(x, number(b, x, 0x1p23)), x);
  Val u = ir.CreateBitCast(scaled, word);
  constexpr uint32_t kRootHalf = 0x3F3504F3;
  Val e = ir.CreateAShr(ir.CreateSub(u, bits(kRootHalf)), bits(23));
  Val m = ir.CreateBitCast(ir.CreateSub(u, ir.CreateShl(e, bits(23))), x->getType());
  e = ir.CreateSub(e, ir.CreateSelect(tiny, bits(23), bits(0)));
  return {ir.CreateSIToFP(e, x->getType()), ir.CreateFSub(m, number(b, x, 1.0)), x};
}

// f²·(−½ + f·P(f)) so that log(1 + f) = f + it. Coefficients of Cephes' logf.
Val log_tail(Builder& b, Val f) {
  Val p = polynomial(
      b, f,
      {3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
       -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2});
  Val square = b.ir.CreateFMul(f, f);
  return b.ir.CreateFMul(square, b.multiply_add(f, p, number(b, f, -0.5)));
}

Val with_special_logs(Builder& b, const Logarithm& parts, Val result) {
  auto& ir = b.ir;
  Val x = parts.input;
  Val zero = number(b, x, 0.0);
  result = ir.CreateSelect(ir.CreateFCmpOEQ(x, number(b, x, kInfinity)), x, result);
  result = ir.CreateSelect(ir.CreateFCmpOEQ(x, zero), number(b, x, -kInfinity), result);
  // Below zero, and NaN.
  return ir.CreateSelect(ir.CreateFCmpULT(x, zero), number(b, x, std::nan("")), result);
}

}  // namespace

Val exp2_f32(Builder& b, Val x, bool fast) {
  x = limited(b, x, -152.0, 130.0);
  Whole n = round_whole(b, x);
  return scale(b, exp2_fraction(b, b.ir.CreateFSub(x, n.real), fast), n);
}

Val exp_f32(Builder& b, Val x, bool fast) {
  x = limited(b, x, -106.0, 90.0);
  Whole n = round_whole(b, b.ir.CreateFMul(x, number(b, x, 1.4426950408889634)));
  Val negative = b.ir.CreateFNeg(n.real);
  Val r = b.multiply_add(negative, number(b, x, kLn2High), x);
  r = b.multiply_add(negative, number(b, x, kLn2Low), r);
  Val p = fast ? polynomial(b, r,
                            {1.00000007187, 0.99999969107, 0.499988926613, 0.166675765431,
                             0.0419156292469, 0.00829761937885})
               : polynomial(b, r,
                            {1.0, 1.0000000498, 0.500000043574, 0.166663648087, 0.0416647733234,
                             0.00837905903569, 0.00140614220791});
  return scale(b, p, n);
}

Val log2_f32(Builder& b, Val x) {
  Logarithm parts = take_apart(b, x);
  Val f = parts.f, tail = log_tail(b, f);
  // log2 e = 1 + 0.4427: the small products are summed before the large terms.
  constexpr double kExcess = 0.44269504088896340736;
  Val sum = b.ir.CreateFMul(tail, number(b, x, kExcess));
  sum = b.multiply_add(f, number(b, x, kExcess), sum);
  sum = b.ir.CreateFAdd(b.ir.CreateFAdd(sum, tail), f);
  return with_special_logs(b, parts, b.ir.CreateFAdd(sum, parts.e));
}

Val log_f32(Builder& b, Val x) {
  Logarithm parts = take_apart(b, x);
  Val sum = b.multiply_add(parts.e, number(b, x, kLn2Low), log_tail(b, parts.f));
  sum = b.ir.CreateFAdd(sum, parts.f);
  return with_special_logs(b, parts, b.multiply_add(parts.e, number(b, x, kLn2High), sum));
}

Val tanh_f32(Builder& b, Val x) {
  auto& ir = b.ir;
  const Val sign[] = {x};
  Val size = b.call(llvm::Intrinsic::fabs, sign);
  // Near 0 an odd polynomial keeps the relative error small; Cephes' coefficients.
  Val square = ir.CreateFMul(x, x);
  Val p = polynomial(b, square,
                     {-3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2, 2.06390887954e-2,
                      -5.70498872745e-3});
  Val near = b.multiply_add(ir.CreateFMul(p, square), x, x);
  Val e = exp_f32(b, ir.CreateFAdd(size, size), false);
  Val one = number(b, x, 1.0);
  Val far = ir.CreateFSub(one, ir.CreateFDiv(number(b, x, 2.0), ir.CreateFAdd(e, one)));
  const Val signs[] = {far, x};
  far = b.call(llvm::Intrinsic::copysign, signs);
  return ir.CreateSelect(ir.CreateFCmpOLT(size, number(b, x, 0.625)), near, far);
}

}  // namespace kiln::host
