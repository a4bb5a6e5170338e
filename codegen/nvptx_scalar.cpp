// Scalar ops as LLVM instructions. Straight-line: choices are selects. Floats below f32 are
// computed in f32 and rounded after each op, which is the exact result rounded once: f32 has more
// than twice their digits.
#include <fmt/format.h>

#include "codegen/floor_division_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "ir/error.h"

namespace kiln::nvptx {
namespace {

namespace I = llvm::Intrinsic;
using llvm::CmpInst;

bool is_small(DType dtype) {
  return is_float(dtype) && size_of(dtype) < 4;
}
bool is_signed(DType dtype) {
  return is_signed_int(dtype);
}

// `compute` on the values as f32, its result rounded to `dtype`; for other dtypes just `compute`.
template <class Compute>
Val in_f32(Builder& b, DType dtype, Compute&& compute, std::initializer_list<Val> in) {
  if (!is_small(dtype)) return compute(dtype, in.begin());
  Val wide[3];
  size_t count = 0;
  for (Val value : in) wide[count++] = cast(b, value, dtype, F32);
  return cast(b, compute(F32, wide), F32, dtype);
}

Val number(Builder& b, DType dtype, int64_t value) {
  return b.constant(Scalar::of_int(dtype, value));
}

// Of 1 and a divisor, or any two. Neither div.approx, which is 0 or a NaN for the largest divisors,
// nor LLVM's reciprocals: infinities and NaNs come out as they should.
Val fast_quotient(Builder& b, Val x, Val y) {
  auto* one = llvm::dyn_cast<llvm::ConstantFP>(x);
  if (one && one->isExactlyValue(1.0)) return b.call(I::nvvm_rcp_approx_ftz_f, {y});
  return b.call(I::nvvm_div_full_ftz, {x, y});
}

Val float_arithmetic(Builder& b, OpCode code, DType dtype, Val x, Val y, bool fast) {
  auto& ir = b.ir;
  switch (code) {
    case OpCode::Add: return ir.CreateFAdd(x, y);
    case OpCode::Sub: return ir.CreateFSub(x, y);
    case OpCode::Mul: return ir.CreateFMul(x, y);
    default: return fast && dtype == F32 ? fast_quotient(b, x, y) : ir.CreateFDiv(x, y);
  }
}

Val integer_arithmetic(Builder& b, OpCode code, Val x, Val y) {
  switch (code) {
    case OpCode::Add: return b.ir.CreateAdd(x, y);
    case OpCode::Sub: return b.ir.CreateSub(x, y);
    default: return b.ir.CreateMul(x, y);
  }
}

Val shift(Builder& b, OpCode code, DType dtype, Val x, Val by) {
  auto& ir = b.ir;
  const int64_t bits = static_cast<int64_t>(8 * size_of(dtype));
  Val zero = b.zero(dtype);
  Val in_range = ir.CreateICmpULT(by, number(b, dtype, bits));
  if (code == OpCode::Shr && is_signed(dtype))
    return ir.CreateAShr(x, ir.CreateSelect(in_range, by, number(b, dtype, bits - 1)));
  // The backend leaves this choice to PTX's shifts, of which 64-bit ones see 32 bits of the
  // distance.
  Val safe = bits == 64 ? b.call(I::umin, {by, number(b, dtype, bits)}, {by->getType()})
                        : ir.CreateSelect(in_range, by, zero);
  Val shifted = code == OpCode::Shl ? ir.CreateShl(x, safe) : ir.CreateLShr(x, safe);
  return ir.CreateSelect(in_range, shifted, zero);
}

// Of a number and a NaN, the number.
Val extremum(Builder& b, DType dtype, Val x, Val y, bool larger) {
  auto& ir = b.ir;
  if (dtype == Bool) return larger ? ir.CreateOr(x, y) : ir.CreateAnd(x, y);
  if (!is_float(dtype)) {
    const I::ID id = is_signed(dtype) ? (larger ? I::smax : I::smin) : (larger ? I::umax : I::umin);
    return b.call(id, {x, y}, {x->getType()});
  }
  if (size_of(dtype) > 1)
    return b.call(larger ? I::maximumnum : I::minimumnum, {x, y}, {x->getType()});
  // The bits are chosen: e5m2's infinities would not survive rounding.
  Val wide_x = cast(b, x, dtype, F32), wide_y = cast(b, y, dtype, F32);
  Val better = larger ? ir.CreateFCmpOGT(wide_x, wide_y) : ir.CreateFCmpOLT(wide_x, wide_y);
  Val take_x = ir.CreateOr(better, ir.CreateFCmpUNO(wide_y, wide_y));
  return ir.CreateSelect(take_x, x, y);
}

CmpInst::Predicate predicate_of(const std::string& kind, DType dtype) {
  const bool real = is_float(dtype), sign = is_signed(dtype);
  auto pick = [&](CmpInst::Predicate f, CmpInst::Predicate s, CmpInst::Predicate u) {
    return real ? f : sign ? s : u;
  };
  if (kind == "eq") return pick(CmpInst::FCMP_OEQ, CmpInst::ICMP_EQ, CmpInst::ICMP_EQ);
  if (kind == "ne") return pick(CmpInst::FCMP_UNE, CmpInst::ICMP_NE, CmpInst::ICMP_NE);
  if (kind == "lt") return pick(CmpInst::FCMP_OLT, CmpInst::ICMP_SLT, CmpInst::ICMP_ULT);
  if (kind == "le") return pick(CmpInst::FCMP_OLE, CmpInst::ICMP_SLE, CmpInst::ICMP_ULE);
  if (kind == "gt") return pick(CmpInst::FCMP_OGT, CmpInst::ICMP_SGT, CmpInst::ICMP_UGT);
  return pick(CmpInst::FCMP_OGE, CmpInst::ICMP_SGE, CmpInst::ICMP_UGE);
}

Val compare(Builder& b, const std::string& kind, DType dtype, Val x, Val y) {
  if (is_small(dtype)) x = cast(b, x, dtype, F32), y = cast(b, y, dtype, F32);
  return b.ir.CreateCmp(predicate_of(kind, dtype), x, y);
}

// Of a float below f32 only the sign bit changes.
Val with_sign_bit(Builder& b, Val x, bool flip) {
  auto& ir = b.ir;
  const unsigned width = static_cast<unsigned>(x->getType()->getScalarSizeInBits());
  const llvm::APInt sign = llvm::APInt::getSignMask(width);
  Val bits = ir.CreateBitCast(x, ir.getIntNTy(width));
  bits = flip ? ir.CreateXor(bits, ir.getInt(sign)) : ir.CreateAnd(bits, ir.getInt(~sign));
  return ir.CreateBitCast(bits, x->getType());
}

Val negated(Builder& b, DType dtype, Val x) {
  if (is_small(dtype)) return with_sign_bit(b, x, true);
  return is_float(dtype) ? b.ir.CreateFNeg(x) : b.ir.CreateNeg(x);
}

Val function(Builder& b, const Op& op, DType dtype, Val x) {
  auto compute = [&](DType in, const Val* values) {
    switch (op.code) {
      case OpCode::Floor: return b.call(I::floor, {values[0]}, {values[0]->getType()});
      case OpCode::Ceil: return b.call(I::ceil, {values[0]}, {values[0]->getType()});
      default: return math(b, op.code, in, values[0], op.flag("fast"));
    }
  };
  return in_f32(b, dtype, compute, {x});
}

}  // namespace

Val absolute(Builder& b, DType dtype, Val x) {
  if (is_small(dtype)) return with_sign_bit(b, x, false);
  if (is_float(dtype)) return b.call(I::fabs, {x}, {x->getType()});
  return is_signed(dtype) ? b.call(I::abs, {x, b.i1(false)}, {x->getType()}) : x;
}

Val binary(Builder& b, OpCode code, DType dtype, Val x, Val y, bool fast) {
  auto& ir = b.ir;
  llvm::IRBuilderBase::FastMathFlagGuard guard(ir);
  llvm::FastMathFlags flags;
  flags.setAllowContract(fast);
  ir.setFastMathFlags(flags);
  switch (code) {
    case OpCode::Min: return extremum(b, dtype, x, y, false);
    case OpCode::Max: return extremum(b, dtype, x, y, true);
    case OpCode::And: return ir.CreateAnd(x, y);
    case OpCode::Or: return ir.CreateOr(x, y);
    case OpCode::Xor: return ir.CreateXor(x, y);
    case OpCode::FloorDiv: return floor_division(b.ir, x, y, is_signed(dtype), false);
    case OpCode::FloorMod: return floor_division(b.ir, x, y, is_signed(dtype), true);
    case OpCode::Shl:
    case OpCode::Shr: return shift(b, code, dtype, x, y);
    case OpCode::Add:
    case OpCode::Sub:
    case OpCode::Mul:
    case OpCode::Div: break;
    default:
      throw InternalError(fmt::format("{} does not take two values of one dtype", info(code).name));
  }
  if (!is_float(dtype)) return integer_arithmetic(b, code, x, y);
  auto compute = [&](DType in, const Val* values) {
    return float_arithmetic(b, code, in, values[0], values[1], fast);
  };
  return in_f32(b, dtype, compute, {x, y});
}

Val scalar_op(Builder& b, const Kernel& kernel, const Op& op, std::span<const Val> in) {
  const DType dtype = kernel.type(op.operands[0]).dtype, result = kernel.type(op.result).dtype;
  switch (op.code) {
    case OpCode::Fma: return b.call(I::fma, in, {in[0]->getType()});
    case OpCode::Neg: return negated(b, dtype, in[0]);
    case OpCode::Abs: return absolute(b, dtype, in[0]);
    case OpCode::Exp:
    case OpCode::Exp2:
    case OpCode::Log:
    case OpCode::Log2:
    case OpCode::Sqrt:
    case OpCode::Rsqrt:
    case OpCode::Tanh:
    case OpCode::Floor:
    case OpCode::Ceil: return function(b, op, dtype, in[0]);
    case OpCode::Compare: return compare(b, op.word("kind"), dtype, in[0], in[1]);
    case OpCode::Not: return b.ir.CreateNot(in[0]);
    case OpCode::Select: return b.ir.CreateSelect(in[0], in[1], in[2]);
    case OpCode::Cast: return cast(b, in[0], dtype, result);
    default: break;
  }
  if (op.operands.size() != 2)
    throw InternalError(op.loc, fmt::format("the GPU tier cannot emit '{}'", info(op.code).name));
  const bool fast = info(op.code).attr("fast") && op.flag("fast");
  return binary(b, op.code, dtype, in[0], in[1], fast);
}

}  // namespace kiln::nvptx
