// atomic: by the thread that runs the point. Layouts of loops with atomics give each point to one.
//
// What PTX has no instruction for, the larger and the smaller of floats, is a loop around compare
// and swap. It begins with an atomic load: a plain one would race with the others' swaps.
#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "ir/error.h"

namespace kiln::nvptx {
namespace {

using R = llvm::AtomicRMWInst;
constexpr auto kRelaxed = llvm::AtomicOrdering::Monotonic;

R::BinOp operation(const std::string& kind, DType dtype) {
  const bool sign = is_signed_int(dtype);
  if (kind == "add") return is_float(dtype) ? R::FAdd : R::Add;
  if (kind == "max") return sign ? R::Max : R::UMax;
  if (kind == "min") return sign ? R::Min : R::UMin;
  if (kind == "and") return R::And;
  if (kind == "or") return R::Or;
  if (kind == "xor") return R::Xor;
  return R::Xchg;
}

struct Update {
  Val pointer;
  DType dtype;
  Val value;
  llvm::SyncScope::ID scope;

  llvm::Align align() const { return llvm::Align(size_of(dtype)); }
  llvm::Type* bits(Builder& b) const {
    return b.ir.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)));
  }
};

// Gives the old element.
Val swapped(Builder& b, const Update& at, OpCode code) {
  auto& ir = b.ir;
  auto* first = ir.CreateAlignedLoad(at.bits(b), at.pointer, at.align());
  first->setAtomic(kRelaxed, at.scope);
  llvm::BasicBlock *before = ir.GetInsertBlock(), *head = b.block("swap"), *done = b.block("done");
  ir.CreateBr(head);
  ir.SetInsertPoint(head);
  auto* seen = ir.CreatePHI(at.bits(b), 2);
  Val old = ir.CreateBitCast(seen, at.value->getType());
  Val wanted = ir.CreateBitCast(binary(b, code, at.dtype, old, at.value), at.bits(b));
  Val swap =
      ir.CreateAtomicCmpXchg(at.pointer, seen, wanted, at.align(), kRelaxed, kRelaxed, at.scope);
  seen->addIncoming(first, before);
  seen->addIncoming(ir.CreateExtractValue(swap, 0), ir.GetInsertBlock());
  b.keep_rolled(ir.CreateCondBr(ir.CreateExtractValue(swap, 1), done, head));
  ir.SetInsertPoint(done);
  return old;
}

Val updated(Builder& b, const Update& at, const std::string& kind) {
  auto& ir = b.ir;
  if (is_float(at.dtype) && kind != "add" && kind != "exchange")
    return swapped(b, at, kind == "max" ? OpCode::Max : OpCode::Min);
  // PTX exchanges bits.
  const bool bits = is_float(at.dtype) && kind == "exchange";
  Val value = bits ? ir.CreateBitCast(at.value, at.bits(b)) : at.value;
  Val old = ir.CreateAtomicRMW(operation(kind, at.dtype), at.pointer, value, at.align(), kRelaxed,
                               at.scope);
  return ir.CreateBitCast(old, at.value->getType());
}

}  // namespace

void Emitter::emit_atomic(const Op& op) {
  if (!point_) throw InternalError(op.loc, "an atomic outside of a parallel");
  const Place target = place(op.operands[1]);
  Values index;
  std::vector<Interval> ranges;
  for (size_t i = 2; i < op.operands.size(); ++i) {
    index.push_back(scalar(op.operands[i]));
    ranges.push_back(ranges_.of(op.operands[i]));
  }
  Val condition = b.both(b.both(point_->valid, point_->first), inside(target, index, ranges));
  const char* scope = target.space == Space::Shared ? "block" : "device";
  const Update at{address(target, index), target.dtype, scalar(op.operands[0]),
                  b.ir.getContext().getOrInsertSyncScopeID(scope)};
  const auto update = [&] { return Values{updated(b, at, op.word("kind"))}; };
  set(op.result, b.when(condition, update, [&] { return Values{b.zero(target.dtype)}; })[0]);
}

}  // namespace kiln::nvptx
