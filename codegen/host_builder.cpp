#include "codegen/host_builder_impl.h"

#include <llvm/IR/Intrinsics.h>

namespace kiln::host {

llvm::Type* Builder::value_type(DType dtype) {
  switch (dtype) {
    case F16:
    case BF16:
    case E4M3:
    case E5M2:
    case F32: return ir.getFloatTy();
    case F64: return ir.getDoubleTy();
    case Bool: return ir.getInt1Ty();
    default: return ir.getIntNTy(static_cast<unsigned>(8 * size_of(dtype)));
  }
}

llvm::Type* Builder::tile_type(DType dtype) {
  return dtype == Bool ? ir.getInt8Ty() : value_type(dtype);
}

llvm::Type* Builder::tensor_type(DType dtype) {
  switch (dtype) {
    case F16:
    case BF16: return ir.getInt16Ty();
    case E4M3:
    case E5M2: return ir.getInt8Ty();
    default: return tile_type(dtype);
  }
}

llvm::Type* Builder::widen(llvm::Type* element, int lanes) {
  return lanes == 1 ? element : llvm::FixedVectorType::get(element, static_cast<unsigned>(lanes));
}

int Builder::lanes_of(Val value) {
  auto* vector = llvm::dyn_cast<llvm::FixedVectorType>(value->getType());
  return vector ? static_cast<int>(vector->getNumElements()) : 1;
}

Val Builder::real(llvm::Type* type, double value) {
  return llvm::ConstantFP::get(type, value);
}

Val Builder::integer(llvm::Type* type, uint64_t value) {
  unsigned bits = type->getScalarSizeInBits();
  return llvm::ConstantInt::get(type, llvm::APInt(64, value).trunc(bits));
}

Val Builder::constant(const Scalar& scalar) {
  llvm::Type* type = value_type(scalar.dtype);
  return is_float(scalar.dtype) ? real(type, scalar.f)
                                : integer(type, static_cast<uint64_t>(scalar.i));
}

const llvm::ConstantInt* Builder::known(Val value) {
  return llvm::dyn_cast<llvm::ConstantInt>(value);
}

Val Builder::spread(Val value, int lanes) {
  if (lanes == 1 || value->getType()->isVectorTy()) return value;
  return ir.CreateVectorSplat(static_cast<unsigned>(lanes), value);
}

Val Builder::lane(Val value, int index) {
  return value->getType()->isVectorTy()
             ? ir.CreateExtractElement(value, static_cast<uint64_t>(index))
             : value;
}

Val Builder::iota(llvm::Type* element, int lanes) {
  if (lanes == 1) return llvm::ConstantInt::get(element, 0);
  std::vector<llvm::Constant*> numbers;
  for (int i = 0; i < lanes; ++i)
    numbers.push_back(llvm::ConstantInt::get(element, static_cast<uint64_t>(i)));
  return llvm::ConstantVector::get(numbers);
}

Val Builder::mask(Val low, Val high, int lanes) {
  const llvm::ConstantInt *l = known(low), *h = known(high);
  if (l && h && l->getSExtValue() <= 0 && h->getSExtValue() >= lanes) return nullptr;
  if (lanes == 1)
    return ir.CreateAnd(ir.CreateICmpSLE(low, i64(0)), ir.CreateICmpSGT(high, i64(0)));
  // In 32 bits, so that a mask costs one compare of one or two registers.
  auto bound = [&](Val value) {
    Val narrow = ir.CreateTrunc(clamp(value, i64(0), i64(lanes)), ir.getInt32Ty());
    return spread(narrow, lanes);
  };
  Val lanes_index = iota(ir.getInt32Ty(), lanes);
  Val below = ir.CreateICmpSLT(lanes_index, bound(high));
  if (l && l->getSExtValue() <= 0) return below;
  return ir.CreateAnd(ir.CreateICmpSGE(lanes_index, bound(low)), below);
}

Val Builder::first(int count, int lanes) {
  return mask(i64(0), i64(count), lanes);
}

Val Builder::call(llvm::Intrinsic::ID id, std::span<const Val> args) {
  llvm::Type* overload[] = {args[0]->getType()};
  return ir.CreateIntrinsic(id, overload, llvm::ArrayRef<Val>(args.data(), args.size()));
}

Val Builder::extremum(Val a, Val b, bool larger) {
  // IRBuilder folds arithmetic of constants, not intrinsics.
  if (known(a) && known(b)) {
    const bool first = known(a)->getSExtValue() > known(b)->getSExtValue();
    return first == larger ? a : b;
  }
  return ir.CreateBinaryIntrinsic(larger ? llvm::Intrinsic::smax : llvm::Intrinsic::smin, a, b);
}

Val Builder::multiply_add(Val a, Val b, Val c) {
  if (!target.fma) return ir.CreateFAdd(ir.CreateFMul(a, b), c);
  const Val args[] = {a, b, c};
  return call(llvm::Intrinsic::fma, args);
}

Val Builder::library_call(const char* name, std::span<const Val> args) {
  llvm::Type* scalar = args[0]->getType()->getScalarType();
  std::vector<llvm::Type*> types(args.size(), scalar);
  llvm::FunctionCallee callee =
      module.getOrInsertFunction(name, llvm::FunctionType::get(scalar, types, false));
  const int lanes = lanes_of(args[0]);
  Val result = llvm::PoisonValue::get(args[0]->getType());
  for (int i = 0; i < lanes; ++i) {
    std::vector<Val> one;
    for (Val arg : args) one.push_back(lane(arg, i));
    Val value = ir.CreateCall(callee, one);
    if (lanes == 1) return value;
    result = ir.CreateInsertElement(result, value, static_cast<uint64_t>(i));
  }
  return result;
}

llvm::BasicBlock* Builder::block(const char* name) {
  return llvm::BasicBlock::Create(ir.getContext(), name, ir.GetInsertBlock()->getParent());
}

Builder::Values Builder::loop(Val begin, Val end, Val step, Values carried,
                              const std::function<Values(Val, const Values&)>& body) {
  // Already rotated: a test in front, then one at the bottom.
  llvm::BasicBlock* before = ir.GetInsertBlock();
  llvm::BasicBlock* head = block("loop");
  llvm::BasicBlock* exit = block("done");
  ir.CreateCondBr(ir.CreateICmpSLT(begin, end), head, exit);

  ir.SetInsertPoint(head);
  llvm::PHINode* index = ir.CreatePHI(ir.getInt64Ty(), 2);
  index->addIncoming(begin, before);
  std::vector<llvm::PHINode*> phis;
  Values current;
  for (Val value : carried) {
    phis.push_back(ir.CreatePHI(value->getType(), 2));
    phis.back()->addIncoming(value, before);
    current.push_back(phis.back());
  }
  Values next = body(index, current);
  llvm::BasicBlock* last = ir.GetInsertBlock();
  Val advanced = ir.CreateNSWAdd(index, step);
  ir.CreateCondBr(ir.CreateICmpSLT(advanced, end), head, exit);
  index->addIncoming(advanced, last);

  ir.SetInsertPoint(exit);
  Values results;
  for (size_t i = 0; i < carried.size(); ++i) {
    phis[i]->addIncoming(next[i], last);
    llvm::PHINode* result = ir.CreatePHI(carried[i]->getType(), 2);
    result->addIncoming(carried[i], before);
    result->addIncoming(next[i], last);
    results.push_back(result);
  }
  return results;
}

void Builder::loop(Val begin, Val end, Val step, const std::function<void(Val)>& body) {
  if (known(begin) && known(end)) {
    int64_t trips = known(end)->getSExtValue() - known(begin)->getSExtValue();
    if (trips <= 0) return;
    if (known(step) && trips <= known(step)->getSExtValue()) return body(begin);
  }
  loop(begin, end, step, {}, [&](Val index, const Values&) {
    body(index);
    return Values{};
  });
}

void Builder::when(Val condition, const std::function<void()>& then,
                   const std::function<void()>& otherwise) {
  if (const llvm::ConstantInt* constant = known(condition)) {
    if (!constant->isZero()) return then();
    if (otherwise) otherwise();
    return;
  }
  llvm::BasicBlock* yes = block("then");
  llvm::BasicBlock* no = otherwise ? block("else") : nullptr;
  llvm::BasicBlock* join = block("join");
  ir.CreateCondBr(condition, yes, no ? no : join);
  ir.SetInsertPoint(yes);
  then();
  ir.CreateBr(join);
  if (no) {
    ir.SetInsertPoint(no);
    otherwise();
    ir.CreateBr(join);
  }
  ir.SetInsertPoint(join);
}

Val Builder::choose(Val condition, const std::function<Val()>& then, Val otherwise) {
  llvm::BasicBlock* before = ir.GetInsertBlock();
  Val value = nullptr;
  llvm::BasicBlock* last = nullptr;
  if (const llvm::ConstantInt* constant = known(condition))
    return constant->isZero() ? otherwise : then();
  when(condition, [&] {
    value = then();
    last = ir.GetInsertBlock();
  });
  llvm::PHINode* result = ir.CreatePHI(otherwise->getType(), 2);
  result->addIncoming(value, last);
  result->addIncoming(otherwise, before);
  return result;
}

llvm::AllocaInst* Builder::variable(llvm::Type* type) {
  llvm::BasicBlock& entry = ir.GetInsertBlock()->getParent()->getEntryBlock();
  llvm::IRBuilder<> at(&entry, entry.begin());
  return at.CreateAlloca(type);
}

}  // namespace kiln::host
