#include <llvm/IR/Intrinsics.h>

#include <algorithm>

#include "codegen/nvptx_builder_impl.h"
#include "ir/error.h"

namespace kiln::nvptx {

llvm::Type* Builder::value_type(DType dtype) {
  switch (dtype) {
    case F16: return ir.getHalfTy();
    case BF16: return ir.getBFloatTy();
    case F32: return ir.getFloatTy();
    case F64: return ir.getDoubleTy();
    case Bool: return ir.getInt1Ty();
    default: return ir.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)));
  }
}

llvm::Type* Builder::memory_type(DType dtype) {
  return dtype == Bool ? ir.getInt8Ty() : value_type(dtype);
}

Val Builder::to_memory(Val value, DType dtype) {
  if (dtype != Bool) return value;
  llvm::Type* type = ir.getInt8Ty();
  if (auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType()))
    type = llvm::FixedVectorType::get(type, vector->getNumElements());
  return ir.CreateZExt(value, type);
}

Val Builder::from_memory(Val stored, DType dtype) {
  if (dtype != Bool) return stored;
  return ir.CreateICmpNE(stored, llvm::Constant::getNullValue(stored->getType()));
}

Val Builder::constant(const Scalar& scalar) {
  llvm::Type* type = value_type(scalar.dtype);
  if (scalar.dtype == E4M3 || scalar.dtype == E5M2)
    return ir.getInt8(to_bits8(scalar.dtype, scalar.f));
  if (is_float(scalar.dtype)) return llvm::ConstantFP::get(type, scalar.f);
  const llvm::APInt bits(64, static_cast<uint64_t>(scalar.i));
  return llvm::ConstantInt::get(type, bits.trunc(type->getScalarSizeInBits()));
}

llvm::BasicBlock* Builder::block(const char* name) {
  return llvm::BasicBlock::Create(ir.getContext(), name, ir.GetInsertBlock()->getParent());
}

// What goes into a loop has a value, though nobody reads it: of registers that each round moves on
// by one, ptxas 13.0 drops a move where the first was never written, and gives results of a wrong
// round.
Val Builder::defined(Val value) {
  return llvm::isa<llvm::UndefValue>(value) ? llvm::Constant::getNullValue(value->getType())
                                            : value;
}

Values Builder::loop(Val begin, Val end, Val step, Values carried,
                     const std::function<Values(Val, const Values&)>& body) {
  llvm::BasicBlock *before = ir.GetInsertBlock(), *head = block("loop"), *inside = block("body"),
                   *after = block("done");
  ir.CreateBr(head);
  ir.SetInsertPoint(head);
  llvm::PHINode* index = ir.CreatePHI(begin->getType(), 2);
  index->addIncoming(begin, before);
  std::vector<llvm::PHINode*> phis;
  Values values;
  for (Val value : carried) {
    phis.push_back(ir.CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(defined(value), before);
    values.push_back(phis.back());
  }
  ir.CreateCondBr(ir.CreateICmpSLT(index, end), inside, after);

  ir.SetInsertPoint(inside);
  Values next = body(index, values);
  if (next.size() != phis.size()) throw InternalError("a loop's body lost a value");
  Val next_index = ir.CreateAdd(index, step, "", false, true);
  llvm::BasicBlock* last = ir.GetInsertBlock();
  keep_rolled(ir.CreateBr(head));
  index->addIncoming(next_index, last);
  for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], last);
  ir.SetInsertPoint(after);
  return values;
}

// Bodies are long already.
void Builder::keep_rolled(llvm::BranchInst* back) {
  llvm::LLVMContext& context = ir.getContext();
  auto* option =
      llvm::MDNode::get(context, llvm::MDString::get(context, "llvm.loop.unroll.disable"));
  auto* marks = llvm::MDNode::getDistinct(context, {nullptr, option});
  marks->replaceOperandWith(0, marks);
  back->setMetadata(llvm::LLVMContext::MD_loop, marks);
}

Values Builder::branch(Val condition, const std::function<Values()>& then,
                       const std::function<Values()>& otherwise) {
  if (!condition) return then();
  if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(condition))
    return known->isOne() ? then() : otherwise();
  llvm::BasicBlock *yes = block("then"), *no = block("else"), *after = block("join");
  ir.CreateCondBr(condition, yes, no);
  ir.SetInsertPoint(yes);
  Values a = then();
  llvm::BasicBlock* a_end = ir.GetInsertBlock();
  ir.CreateBr(after);
  ir.SetInsertPoint(no);
  Values b = otherwise();
  llvm::BasicBlock* b_end = ir.GetInsertBlock();
  ir.CreateBr(after);
  ir.SetInsertPoint(after);
  return join({{a_end, std::move(a)}, {b_end, std::move(b)}});
}

Values Builder::join(const std::vector<std::pair<llvm::BasicBlock*, Values>>& from) {
  Values joined;
  if (from.empty()) return joined;
  for (const auto& [block, values] : from)
    if (values.size() != from[0].second.size())
      throw InternalError("branches give different numbers of values");
  for (size_t i = 0; i < from[0].second.size(); ++i) {
    Val first = from[0].second[i];
    if (std::ranges::all_of(from, [&](const auto& way) { return way.second[i] == first; })) {
      joined.push_back(first);
      continue;
    }
    llvm::PHINode* phi = ir.CreatePHI(first->getType(), static_cast<unsigned>(from.size()));
    for (const auto& [block, values] : from) phi->addIncoming(values[i], block);
    joined.push_back(phi);
  }
  return joined;
}

}  // namespace kiln::nvptx
