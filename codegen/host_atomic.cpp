// atomic: the lanes one after the other, for they may meet in one element. A tile has one thread;
// tensors are shared with the blocks that run on others.
#include "codegen/host_emit_impl.h"
#include "codegen/host_ops_impl.h"

namespace kiln::host {
namespace {

using R = llvm::AtomicRMWInst;

R::BinOp operation(const std::string& kind, DType dtype) {
  const bool real = is_float(dtype), sign = is_signed_int(dtype);
  if (kind == "add") return real ? R::FAdd : R::Add;
  if (kind == "max") return real ? R::FMax : sign ? R::Max : R::UMax;
  if (kind == "min") return real ? R::FMin : sign ? R::Min : R::UMin;
  if (kind == "and") return R::And;
  if (kind == "or") return R::Or;
  if (kind == "xor") return R::Xor;
  return R::Xchg;
}

Val combined(Builder& b, R::BinOp operation, DType dtype, Val old, Val value) {
  // Of a number and a NaN, the number.
  const auto unless_nan = [&](Val better) {
    return is_float(dtype) ? b.ir.CreateSelect(b.ir.CreateFCmpUNO(old, old), value, better)
                           : better;
  };
  switch (operation) {
    case R::Add: return b.ir.CreateAdd(old, value);
    case R::FAdd: return b.ir.CreateFAdd(old, value);
    case R::FMax:
    case R::Max:
    case R::UMax: return unless_nan(maximum(b, old, value, dtype));
    case R::FMin:
    case R::Min:
    case R::UMin: return unless_nan(minimum(b, old, value, dtype));
    case R::And: return b.ir.CreateAnd(old, value);
    case R::Or: return b.ir.CreateOr(old, value);
    case R::Xor: return b.ir.CreateXor(old, value);
    default: return value;
  }
}

}  // namespace

void Emitter::emit_atomic(const Op& op, int lanes, int active) {
  const Place target = place(op.operands[1]);
  const R::BinOp code = operation(op.word("kind"), target.dtype);
  const std::vector<Index> index = indices(op, 2);
  const Element value = element(op.operands[0]);
  const auto of_lane = [&](const Element& element, int lane) {
    if (!element.linear) return b.lane(element.value, lane);
    return b.ir.CreateAdd(element.value,
                          b.integer(element.value->getType(), static_cast<uint64_t>(lane)));
  };
  Val zero = llvm::Constant::getNullValue(b.value_type(target.dtype));
  Val result = lanes == 1 ? zero : b.spread(zero, lanes);
  for (int lane = 0; lane < active; ++lane) {
    std::vector<Val> at;
    Val inside = b.ir.getTrue();
    for (size_t i = 0; i < index.size(); ++i) {
      const Axis& axis = target.axes[i];
      at.push_back(b.ir.CreateSExt(of_lane(index[i].at, lane), b.ir.getInt64Ty()));
      const Interval range = index[i].range;
      if (range.low >= axis.sure_begin && range.high < axis.sure_end) continue;
      Val position = b.ir.CreateAdd(at[i], axis.start);
      inside = b.ir.CreateAnd(inside, b.ir.CreateAnd(b.ir.CreateICmpSGE(position, axis.low),
                                                     b.ir.CreateICmpSLT(position, axis.high)));
    }
    const auto update = [&]() -> Val {
      Val pointer = address(target, at), with = of_lane(value, lane);
      if (target.as_bits)
        return b.ir.CreateAtomicRMW(code, pointer, with, llvm::Align(size_of(target.dtype)),
                                    llvm::AtomicOrdering::Monotonic);
      Val old = read(target, pointer, 1, nullptr, nullptr);
      write(target, pointer, combined(b, code, target.dtype, old, with), 1, nullptr);
      return old;
    };
    Val old = b.choose(inside, update, zero);
    result = lanes == 1 ? old : b.ir.CreateInsertElement(result, old, static_cast<uint64_t>(lane));
  }
  set(op.result, {result});
}

}  // namespace kiln::host
