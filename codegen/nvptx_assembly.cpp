#include "codegen/nvptx_assembly_impl.h"

#include <fmt/format.h>
#include <llvm/IR/InlineAsm.h>

namespace kiln::nvptx {

Values assembly(Builder& b, const std::string& text, const std::string& constraints,
                std::span<llvm::Type* const> results, std::span<const Val> arguments) {
  auto& ir = b.ir;
  std::vector<llvm::Type*> types;
  for (Val argument : arguments) types.push_back(argument->getType());
  llvm::Type* result = ir.getVoidTy();
  if (results.size() == 1) result = results[0];
  if (results.size() > 1)
    result = llvm::StructType::get(ir.getContext(),
                                   llvm::ArrayRef<llvm::Type*>(results.data(), results.size()));
  auto* type = llvm::FunctionType::get(result, types, false);
  auto* code = llvm::InlineAsm::get(type, text, constraints, true);
  llvm::CallInst* call =
      ir.CreateCall(type, code, llvm::ArrayRef<Val>(arguments.data(), arguments.size()));
  call->addFnAttr(llvm::Attribute::Convergent);
  call->addFnAttr(llvm::Attribute::NoUnwind);
  if (results.size() == 1) return {call};
  Values values;
  for (unsigned i = 0; i < results.size(); ++i) values.push_back(ir.CreateExtractValue(call, i));
  return values;
}

Values held_here(Builder& b, std::span<const Val> values) {
  if (values.empty()) return {};
  std::string constraints;
  std::vector<llvm::Type*> types;
  for (Val value : values) {
    const llvm::Type* type = value->getType();
    const bool is_float = type->isFloatTy() || type->isDoubleTy();
    const bool is_wide = type->getScalarSizeInBits() == 64;
    constraints += is_float ? is_wide ? "=d," : "=f," : is_wide ? "=l," : "=r,";
    types.push_back(value->getType());
  }
  for (size_t i = 0; i < values.size(); ++i) constraints += fmt::format("{},", i);
  return assembly(b, "", constraints + "~{memory}", types, values);
}

}  // namespace kiln::nvptx
