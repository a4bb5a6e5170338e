// Conversions: one rounding each. Floats below f32 are converted by way of f32, which holds them
// exactly; what f32 cannot hold is first rounded to odd there, so that the second rounding sees on
// which side of every tie the value was.
#include "codegen/nvptx_fp8_impl.h"
#include "codegen/nvptx_ops_impl.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;

bool is_small(DType dtype) {
  return is_float(dtype) && size_of(dtype) < 4;
}

// A value of f16, bf16, fp8 or f32 as f32.
Val to_f32(Builder& b, Val value, DType from) {
  auto& ir = b.ir;
  switch (from) {
    case F16: return ir.CreateFPExt(value, ir.getFloatTy());
    case BF16: {
      Val bits = ir.CreateZExt(ir.CreateBitCast(value, ir.getInt16Ty()), ir.getInt32Ty());
      return ir.CreateBitCast(ir.CreateShl(bits, b.i32(16)), ir.getFloatTy());
    }
    case E4M3:
    case E5M2: return fp8_to_f32(b, value, from);
    default: return value;
  }
}

Val from_f32(Builder& b, Val value, DType to) {
  if (to == E4M3 || to == E5M2) return f32_to_fp8(b, value, to);
  return to == F32 ? value : b.ir.CreateFPTrunc(value, b.value_type(to));
}

// f32 rounded toward zero, with the last bit set if that lost anything.
Val odd(Builder& b, Val toward_zero, Val inexact) {
  auto& ir = b.ir;
  Val bits = ir.CreateBitCast(toward_zero, ir.getInt32Ty());
  bits = ir.CreateOr(bits, ir.CreateZExt(inexact, ir.getInt32Ty()));
  return ir.CreateBitCast(bits, ir.getFloatTy());
}

Val odd_from_f64(Builder& b, Val value) {
  Val cut = b.call(I::nvvm_d2f_rz, {value});
  Val inexact = b.ir.CreateFCmpUNE(b.ir.CreateFPExt(cut, value->getType()), value);
  return odd(b, cut, inexact);
}

Val odd_from_int(Builder& b, Val value, DType from) {
  const bool sign = is_signed_int(from);
  const bool wide = size_of(from) == 8;
  Val cut = b.call(sign ? (wide ? I::nvvm_ll2f_rz : I::nvvm_i2f_rz)
                        : (wide ? I::nvvm_ull2f_rz : I::nvvm_ui2f_rz),
                   {value});
  Val back = sign ? b.ir.CreateFPToSI(cut, value->getType())  // not out of range: cut toward zero
                  : b.ir.CreateFPToUI(cut, value->getType());
  return odd(b, cut, b.ir.CreateICmpNE(back, value));
}

Val float_to_float(Builder& b, Val value, DType from, DType to) {
  if (from == F64) {
    // f16 too has an instruction that rounds once.
    if (to == F32 || to == F16) return b.ir.CreateFPTrunc(value, b.value_type(to));
    return from_f32(b, odd_from_f64(b, value), to);
  }
  Val single = to_f32(b, value, from);
  return to == F64 ? b.ir.CreateFPExt(single, b.ir.getDoubleTy()) : from_f32(b, single, to);
}

// f32 or f64 to an integer. cvt.rzi saturates; its NaN is 0 from f32 to 32 bits, but not elsewhere.
Val float_to_int(Builder& b, Val value, DType to) {
  const bool sign = is_signed_int(to);
  llvm::Type* type = b.value_type(to);
  if (value->getType()->isDoubleTy() || size_of(to) == 8)
    return b.call(sign ? I::fptosi_sat : I::fptoui_sat, {value}, {type, value->getType()});
  Val word = b.call(sign ? I::nvvm_f2i_rz : I::nvvm_f2ui_rz, {value});
  if (size_of(to) == 4) return word;
  const int bits = static_cast<int>(8 * size_of(to)) - (sign ? 1 : 0);
  const int64_t largest = (int64_t{1} << bits) - 1;
  word = b.call(sign ? I::smin : I::umin, {word, b.i32(largest)}, {word->getType()});
  if (sign) word = b.call(I::smax, {word, b.i32(-largest - 1)}, {word->getType()});
  return b.ir.CreateTrunc(word, type);
}

Val int_to_float(Builder& b, Val value, DType from, DType to) {
  if (from == Bool)
    return b.ir.CreateSelect(value, b.constant(Scalar::of_float(to, 1)), b.zero(to));
  if (is_small(to) && size_of(from) >= 4) return from_f32(b, odd_from_int(b, value, from), to);
  const DType exact = is_small(to) ? F32 : to;
  llvm::Type* type = b.value_type(exact);
  Val real = is_signed_int(from) ? b.ir.CreateSIToFP(value, type) : b.ir.CreateUIToFP(value, type);
  return exact == to ? real : from_f32(b, real, to);
}

}  // namespace

Val cast(Builder& b, Val value, DType from, DType to) {
  if (from == to) return value;
  auto& ir = b.ir;
  llvm::IRBuilderBase::FastMathFlagGuard guard(ir);
  ir.clearFastMathFlags();
  if (is_float(from)) {
    if (is_float(to)) return float_to_float(b, value, from, to);
    Val wide = to_f32(b, value, from);
    if (to != Bool) return float_to_int(b, wide, to);
    return ir.CreateFCmpUNE(wide, llvm::Constant::getNullValue(wide->getType()));
  }
  if (is_float(to)) return int_to_float(b, value, from, to);
  if (to == Bool) return ir.CreateICmpNE(value, b.zero(from));
  return is_signed_int(from) ? ir.CreateSExtOrTrunc(value, b.value_type(to))
                             : ir.CreateZExtOrTrunc(value, b.value_type(to));
}

Val pack_rounded(Builder& b, Val low, Val high, DType to) {
  Val pair = b.call(to == F16 ? I::nvvm_ff2f16x2_rn : I::nvvm_ff2bf16x2_rn, {high, low});
  return b.ir.CreateBitCast(pair, b.ir.getInt32Ty());
}

}  // namespace kiln::nvptx
