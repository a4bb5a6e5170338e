// Scalar ops as LLVM instructions, on one value or a vector.
#include <fmt/format.h>
#include <llvm/IR/Intrinsics.h>

#include "codegen/floor_division_impl.h"
#include "codegen/host_ops_impl.h"
#include "ir/error.h"

namespace kiln::host {
namespace {

using llvm::CmpInst;

bool is_small(DType dtype) {
  return is_float(dtype) && size_of(dtype) < 4;
}
bool is_signed(DType dtype) {
  return is_signed_int(dtype);
}

Val less(Builder& b, Val x, Val y, DType dtype) {
  if (is_float(dtype)) return b.ir.CreateFCmpOLT(x, y);
  return b.ir.CreateICmp(is_signed(dtype) ? CmpInst::ICMP_SLT : CmpInst::ICMP_ULT, x, y);
}

Val is_nan(Builder& b, Val x) {
  return b.ir.CreateFCmpUNO(x, x);
}

// Of a number and a NaN, the number; of equals, the first.
Val extremum(Builder& b, Val x, Val y, DType dtype, bool larger) {
  Val better = larger ? maximum(b, x, y, dtype) : minimum(b, x, y, dtype);
  return is_float(dtype) ? b.ir.CreateSelect(is_nan(b, x), y, better) : better;
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

Val shift(Builder& b, OpCode code, Val x, Val by, DType dtype) {
  auto& ir = b.ir;
  const uint64_t bits = 8 * size_of(dtype);
  Val in_range = ir.CreateICmpULT(by, b.integer(by->getType(), bits));
  Val zero = b.integer(x->getType(), 0);
  if (code == OpCode::Shr && is_signed(dtype))
    return ir.CreateAShr(x, ir.CreateSelect(in_range, by, b.integer(by->getType(), bits - 1)));
  Val safe = ir.CreateSelect(in_range, by, zero);
  Val shifted = code == OpCode::Shl ? ir.CreateShl(x, safe) : ir.CreateLShr(x, safe);
  return ir.CreateSelect(in_range, shifted, zero);
}

Val single_rounding_fma(Builder& b, std::span<const Val> in) {
  if (b.target.fma) return b.call(llvm::Intrinsic::fma, in);
  return b.library_call(in[0]->getType()->getScalarType()->isDoubleTy() ? "fma" : "fmaf", in);
}

Val function(Builder& b, const Op& op, Val x) {
  auto& ir = b.ir;
  const std::span<const Val> in(&x, 1);
  auto one_over = [&](Val y) { return ir.CreateFDiv(b.real(y->getType(), 1.0), y); };
  switch (op.code) {
    case OpCode::Sqrt: return b.call(llvm::Intrinsic::sqrt, in);
    case OpCode::Rsqrt: return one_over(b.call(llvm::Intrinsic::sqrt, in));
    case OpCode::Floor: return b.call(llvm::Intrinsic::floor, in);
    case OpCode::Ceil: return b.call(llvm::Intrinsic::ceil, in);
    default: break;
  }
  if (x->getType()->getScalarType()->isDoubleTy())
    return b.library_call(std::string(info(op.code).name).c_str(), in);
  const bool fast = op.flag("fast");
  switch (op.code) {
    case OpCode::Exp: return exp_f32(b, x, fast);
    case OpCode::Exp2: return exp2_f32(b, x, fast);
    case OpCode::Log: return log_f32(b, x);
    case OpCode::Log2: return log2_f32(b, x);
    case OpCode::Tanh: return tanh_f32(b, x);
    default:
      throw InternalError(op.loc,
                          fmt::format("the host tier cannot emit '{}'", info(op.code).name));
  }
}

Val arithmetic(Builder& b, const Op& op, Val x, Val y, bool real) {
  auto& ir = b.ir;
  switch (op.code) {
    case OpCode::Add: return real ? ir.CreateFAdd(x, y) : ir.CreateAdd(x, y);
    case OpCode::Sub: return real ? ir.CreateFSub(x, y) : ir.CreateSub(x, y);
    case OpCode::Mul: return real ? ir.CreateFMul(x, y) : ir.CreateMul(x, y);
    default: return ir.CreateFDiv(x, y);
  }
}

Val compute(Builder& b, const Op& op, DType dtype, DType result, std::span<const Val> in) {
  auto& ir = b.ir;
  switch (op.code) {
    case OpCode::Add:
    case OpCode::Sub:
    case OpCode::Mul:
    case OpCode::Div: return arithmetic(b, op, in[0], in[1], is_float(dtype));
    case OpCode::FloorDiv: return floor_division(b.ir, in[0], in[1], is_signed(dtype), false);
    case OpCode::FloorMod: return floor_division(b.ir, in[0], in[1], is_signed(dtype), true);
    case OpCode::Fma: return single_rounding_fma(b, in);
    case OpCode::Min: return extremum(b, in[0], in[1], dtype, false);
    case OpCode::Max: return extremum(b, in[0], in[1], dtype, true);
    case OpCode::Neg: return is_float(dtype) ? ir.CreateFNeg(in[0]) : ir.CreateNeg(in[0]);
    case OpCode::Abs: return absolute(b, in[0], dtype);
    case OpCode::Compare: return ir.CreateCmp(predicate_of(op.word("kind"), dtype), in[0], in[1]);
    case OpCode::And: return ir.CreateAnd(in[0], in[1]);
    case OpCode::Or: return ir.CreateOr(in[0], in[1]);
    case OpCode::Xor: return ir.CreateXor(in[0], in[1]);
    case OpCode::Not: return ir.CreateNot(in[0]);
    case OpCode::Shl:
    case OpCode::Shr: return shift(b, op.code, in[0], in[1], dtype);
    case OpCode::Select: return ir.CreateSelect(in[0], in[1], in[2]);
    case OpCode::Cast: return cast(b, in[0], dtype, result);
    default: return function(b, op, in[0]);
  }
}

bool rounds(OpCode code) {
  switch (code) {
    case OpCode::Add:
    case OpCode::Sub:
    case OpCode::Mul:
    case OpCode::Div:
    case OpCode::Exp:
    case OpCode::Exp2:
    case OpCode::Log:
    case OpCode::Log2:
    case OpCode::Sqrt:
    case OpCode::Rsqrt:
    case OpCode::Tanh: return true;
    default: return false;
  }
}

}  // namespace

Val maximum(Builder& b, Val a, Val x, DType dtype) {
  return b.ir.CreateSelect(less(b, a, x, dtype), x, a);
}

Val minimum(Builder& b, Val a, Val x, DType dtype) {
  return b.ir.CreateSelect(less(b, x, a, dtype), x, a);
}

Val absolute(Builder& b, Val a, DType dtype) {
  const Val args[] = {a, b.ir.getFalse()};
  if (is_float(dtype)) return b.call(llvm::Intrinsic::fabs, std::span(args, 1));
  return is_signed(dtype) ? b.call(llvm::Intrinsic::abs, args) : a;
}

Val apply(Builder& b, const Op& op, DType dtype, DType result, std::span<const Val> in) {
  llvm::IRBuilderBase::FastMathFlagGuard guard(b.ir);
  if (info(op.code).attr("fast") && op.flag("fast")) {
    // Only contraction: reciprocal estimates would turn 1/0 into a NaN.
    llvm::FastMathFlags flags;
    flags.setAllowContract(true);
    b.ir.setFastMathFlags(flags);
  }
  Val value = compute(b, op, dtype, result, in);
  return is_small(result) && rounds(op.code) ? round_to(b, value, result) : value;
}

}  // namespace kiln::host
