// copy and fill: which way, by where the elements are.
#include "codegen/nvptx_assembly_impl.h"
#include "codegen/nvptx_copy_impl.h"
#include "codegen/nvptx_ops_impl.h"
#include "codegen/nvptx_words_impl.h"

namespace kiln::nvptx {

void Emitter::emit_copy(const Op& op) {
  const Value from = op.operands[0], to = op.operands[1];
  const Scalar pad = convert(Scalar::of_float(F64, op.real("pad")), kernel_.type(from).dtype);
  if (!is_fragment(from) && !is_fragment(to)) {
    const bool async = op.word("instruction") == "cp_async";
    copy_memory(*this, place(from), place(to), pad, async);
    if (async && op.word("group") == "own") b.call(llvm::Intrinsic::nvvm_cp_async_commit_group, {});
    return;
  }
  if (!is_fragment(from))
    return load_fragment(*this, place(from), fragment(to), pad, waits_only(kernel_, to));
  if (!is_fragment(to)) {
    // What waits is converted here, and not where it was loaded: there it has not arrived.
    Fragment& stored = fragment(from);
    const bool in_words = stored.packed || per_word(stored.dtype) == 1;
    if (stored.dtype != kernel_.type(to).dtype && in_words && waits_only(kernel_, from))
      stored.registers = held_here(b, stored.registers);
    return store_fragment(*this, stored, place(to));
  }
  copy_fragment(*this, op.loc, fragment(from), fragment(to));
}

void Emitter::emit_fill(const Op& op) {
  const Value value = op.operands[0], to = op.operands[1];
  Val converted = cast(b, scalar(value), kernel_.type(value).dtype, kernel_.type(to).dtype);
  if (!is_fragment(to)) return fill_memory(*this, place(to), converted);
  Values& registers = fragment(to).registers;
  std::fill(registers.begin(), registers.end(), converted);
}

Values elements_of(Builder& b, Val value, int64_t width) {
  if (width == 1) return {value};
  Values elements;
  for (int64_t i = 0; i < width; ++i)
    elements.push_back(b.ir.CreateExtractElement(value, static_cast<uint64_t>(i)));
  return elements;
}

Val vector_of(Builder& b, std::span<const Val> elements) {
  if (elements.size() == 1) return elements[0];
  Val vector = llvm::PoisonValue::get(
      llvm::FixedVectorType::get(elements[0]->getType(), static_cast<unsigned>(elements.size())));
  for (size_t i = 0; i < elements.size(); ++i)
    vector = b.ir.CreateInsertElement(vector, elements[i], static_cast<uint64_t>(i));
  return vector;
}

}  // namespace kiln::nvptx
