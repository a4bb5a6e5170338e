#include "codegen/nvptx_fp8_impl.h"

#include <bit>
#include <cmath>

#include "codegen/nvptx_ops_impl.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;

// The first GPUs whose conversions know fp8, and what the rest must know of the formats.
constexpr int kFirstWithFp8 = 89;

struct Format {
  int mantissa, bias;
  int64_t largest;  // code of the largest finite value
  int64_t nan;
};
constexpr Format kE4M3 = {3, 7, 0x7E, 0x7F};
constexpr Format kE5M2 = {2, 15, 0x7B, 0x7E};

constexpr int kMantissa = 23, kBias = 127;  // of f32

Val round_by_integers(Builder& b, Val value, const Format& format) {
  auto& ir = b.ir;
  const int dropped = kMantissa - format.mantissa;
  Val bits = ir.CreateBitCast(value, ir.getInt32Ty());
  Val magnitude = ir.CreateAnd(bits, b.i32(0x7FFFFFFF));

  // To nearest even: half, less one unless the kept part is odd, carries into it.
  Val odd = ir.CreateAnd(ir.CreateLShr(magnitude, b.i32(dropped)), b.i32(1));
  Val code = ir.CreateAdd(ir.CreateAdd(magnitude, b.i32((int64_t{1} << (dropped - 1)) - 1)), odd);
  code = ir.CreateSub(ir.CreateLShr(code, b.i32(dropped)),
                      b.i32(static_cast<int64_t>(kBias - format.bias) << format.mantissa));

  // Below the smallest normal number, the sum with a number whose last bit is worth the smallest
  // subnormal has the code in its last bits: the addition rounds.
  const float magic = std::ldexp(1.0f, 1 - format.bias - format.mantissa + kMantissa);
  const float normal = std::ldexp(1.0f, 1 - format.bias);
  Val sum = ir.CreateFAdd(ir.CreateBitCast(magnitude, ir.getFloatTy()),
                          llvm::ConstantFP::get(ir.getFloatTy(), magic));
  Val small =
      ir.CreateSub(ir.CreateBitCast(sum, ir.getInt32Ty()), b.i32(std::bit_cast<int32_t>(magic)));
  Val is_small = ir.CreateICmpULT(magnitude, b.i32(std::bit_cast<int32_t>(normal)));
  code = ir.CreateSelect(is_small, small, code);

  code = b.call(I::umin, {code, b.i32(format.largest)}, {ir.getInt32Ty()});
  Val is_nan = ir.CreateICmpUGT(magnitude, b.i32(0x7F800000));
  code = ir.CreateSelect(is_nan, b.i32(format.nan), code);
  Val sign = ir.CreateAnd(ir.CreateLShr(bits, b.i32(24)), b.i32(0x80));
  return ir.CreateTrunc(ir.CreateOr(code, sign), ir.getInt8Ty());
}

// The bits of an f16 as f32.
Val from_half_bits(Builder& b, Val bits) {
  auto& ir = b.ir;
  Val half = ir.CreateBitCast(ir.CreateTrunc(bits, ir.getInt16Ty()), ir.getHalfTy());
  return ir.CreateFPExt(half, ir.getFloatTy());
}

// The fields moved into those of an f16 are the value with the wrong bias: 2^8 too small.
Val e4m3_by_integers(Builder& b, Val value) {
  auto& ir = b.ir;
  Val bits = ir.CreateZExt(value, ir.getInt32Ty());
  Val code = ir.CreateAnd(bits, b.i32(0x7F));
  Val sign = ir.CreateShl(ir.CreateAnd(bits, b.i32(0x80)), b.i32(8));
  Val half = from_half_bits(b, ir.CreateOr(ir.CreateShl(code, b.i32(7)), sign));
  Val scaled = ir.CreateFMul(half, llvm::ConstantFP::get(ir.getFloatTy(), 256.0));
  Val is_nan = ir.CreateICmpEQ(code, b.i32(kE4M3.nan));
  return ir.CreateSelect(is_nan, llvm::ConstantFP::getNaN(ir.getFloatTy()), scaled);
}

}  // namespace

Val f32_to_fp8(Builder& b, Val value, DType to) {
  if (b.target.capability < kFirstWithFp8)
    return round_by_integers(b, value, to == E4M3 ? kE4M3 : kE5M2);
  // Two at a time; the second argument becomes the low half.
  Val pair =
      b.call(to == E4M3 ? I::nvvm_ff_to_e4m3x2_rn : I::nvvm_ff_to_e5m2x2_rn, {b.zero(F32), value});
  return b.ir.CreateTrunc(pair, b.ir.getInt8Ty());
}

Val fp8_to_f32(Builder& b, Val value, DType from) {
  auto& ir = b.ir;
  if (from == E5M2)  // the upper half of an f16
    return from_half_bits(b, ir.CreateShl(ir.CreateZExt(value, ir.getInt32Ty()), b.i32(8)));
  if (b.target.capability < kFirstWithFp8) return e4m3_by_integers(b, value);
  Val pair = b.call(I::nvvm_e4m3x2_to_f16x2_rn, {ir.CreateZExt(value, ir.getInt16Ty())});
  return ir.CreateFPExt(ir.CreateExtractElement(pair, b.i32(0)), ir.getFloatTy());
}

bool has_fp8_words(const Builder& b, DType from, DType to) {
  return b.target.capability >= kFirstWithFp8 && (from == E4M3 || from == E5M2) &&
         (to == F16 || to == BF16);
}

std::array<Val, 2> fp8_word_to_halves(Builder& b, Val word, DType from, DType to) {
  auto& ir = b.ir;
  const auto convert = from == E4M3 ? I::nvvm_e4m3x2_to_f16x2_rn : I::nvvm_e5m2x2_to_f16x2_rn;
  std::array<Val, 2> words;
  for (uint64_t half = 0; half < 2; ++half) {
    Val two = ir.CreateTrunc(ir.CreateLShr(word, b.i32(half == 0 ? 0 : 16)), ir.getInt16Ty());
    Val pair = b.call(convert, {two});
    if (to == F16) {
      words[half] = ir.CreateBitCast(pair, ir.getInt32Ty());
      continue;
    }
    const auto wide = [&](uint64_t i) {
      return ir.CreateFPExt(ir.CreateExtractElement(pair, i), ir.getFloatTy());
    };
    words[half] = pack_rounded(b, wide(0), wide(1), BF16);
  }
  return words;
}

}  // namespace kiln::nvptx
