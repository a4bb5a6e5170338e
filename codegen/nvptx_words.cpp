#include "codegen/nvptx_words_impl.h"

#include <llvm/IR/Instructions.h>

#include "codegen/nvptx_ops_impl.h"

namespace kiln::nvptx {
namespace {

llvm::Type* vector_of(Builder& b, DType dtype) {
  return llvm::FixedVectorType::get(b.memory_type(dtype), static_cast<unsigned>(per_word(dtype)));
}

// The f32 that a half was rounded from.
Val before_rounding(Val half) {
  auto* rounding = llvm::dyn_cast<llvm::FPTruncInst>(half);
  return rounding && rounding->getOperand(0)->getType()->isFloatTy() ? rounding->getOperand(0)
                                                                     : nullptr;
}

// `one` on each 32-bit part of a value, which may be narrower or wider.
Val by_words(Builder& b, Val value, const std::function<Val(Val)>& one) {
  auto& ir = b.ir;
  llvm::Type* type = value->getType();
  const unsigned bits = type->getScalarSizeInBits();
  llvm::Type* integer = ir.getIntNTy(bits);
  Val number = ir.CreateBitCast(value, integer);
  if (bits <= 32)
    return ir.CreateBitCast(ir.CreateTrunc(one(ir.CreateZExt(number, ir.getInt32Ty())), integer),
                            type);
  llvm::Type* pair = llvm::FixedVectorType::get(ir.getInt32Ty(), 2);
  Val words = ir.CreateBitCast(number, pair);
  Val moved = llvm::PoisonValue::get(pair);
  for (uint64_t i = 0; i < 2; ++i)
    moved = ir.CreateInsertElement(moved, one(ir.CreateExtractElement(words, i)), i);
  return ir.CreateBitCast(moved, type);
}

// Of all lanes, whose numbers end at 31.
Val shuffle(Builder& b, llvm::Intrinsic::ID id, Val value, Val lane) {
  return by_words(b, value, [&](Val word) {
    return b.call(id, {b.i32(-1), word, lane, b.i32(31)});
  });
}

}  // namespace

Val pack_word(Builder& b, std::span<const Val> elements, DType dtype) {
  auto& ir = b.ir;
  if (per_word(dtype) == 1) return ir.CreateBitCast(elements[0], ir.getInt32Ty());
  if (dtype == F16 || dtype == BF16) {
    Val low = before_rounding(elements[0]), high = before_rounding(elements[1]);
    if (low && high) return pack_rounded(b, low, high, dtype);
  }
  // Bytes by shifts: of a vector, LLVM computes parts shared by several words with bytes undefined.
  if (per_word(dtype) == 4) {
    const auto pair = [&](Val low, Val high, int shift) {
      return ir.CreateOr(low, ir.CreateShl(high, b.i32(shift)));
    };
    Values bytes;
    for (Val element : elements)
      bytes.push_back(ir.CreateZExt(b.to_memory(element, dtype), ir.getInt32Ty()));
    return pair(pair(bytes[0], bytes[1], 8), pair(bytes[2], bytes[3], 8), 16);
  }
  Val vector = llvm::PoisonValue::get(vector_of(b, dtype));
  for (uint64_t i = 0; i < elements.size(); ++i)
    vector = ir.CreateInsertElement(vector, elements[i], i);
  return ir.CreateBitCast(vector, ir.getInt32Ty());
}

Values unpack_word(Builder& b, Val word, DType dtype) {
  auto& ir = b.ir;
  if (per_word(dtype) == 1) return {ir.CreateBitCast(word, b.value_type(dtype))};
  Val vector = ir.CreateBitCast(word, vector_of(b, dtype));
  Values elements;
  for (uint64_t i = 0; i < static_cast<uint64_t>(per_word(dtype)); ++i)
    elements.push_back(b.from_memory(ir.CreateExtractElement(vector, i), dtype));
  return elements;
}

Val shuffle_xor(Builder& b, Val value, int mask) {
  return shuffle(b, llvm::Intrinsic::nvvm_shfl_sync_bfly_i32, value, b.i32(mask));
}

Val shuffle_from(Builder& b, Val value, Val source) {
  return shuffle(b, llvm::Intrinsic::nvvm_shfl_sync_idx_i32, value, source);
}

}  // namespace kiln::nvptx
