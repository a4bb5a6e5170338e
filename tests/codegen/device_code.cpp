#include "tests/codegen/device_code.h"

#include <fmt/format.h>
#include <llvm/MC/TargetRegistry.h>

namespace kiln::testing {

DeviceCode::DeviceCode(const std::string& target, bool fast)
    : target_(target), owner_("test"), b_(owner_.module(), gpu_target(target), fast) {
  initialize_llvm();
  owner_.set_target(*machine());
}

DeviceCode::~DeviceCode() = default;

std::unique_ptr<llvm::TargetMachine> DeviceCode::machine() const {
  const llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(triple, target_, fmt::format("+ptx{}", b_.ptx),
                                 llvm::TargetOptions(), std::nullopt, std::nullopt));
}

llvm::Function& DeviceCode::start(const std::string& name, llvm::Type* result,
                                  llvm::ArrayRef<llvm::Type*> arguments) {
  auto* type = llvm::FunctionType::get(result, arguments, false);
  auto* function =
      llvm::Function::Create(type, llvm::Function::ExternalLinkage, name, owner_.module());
  if (b_.fast) function->addFnAttr("denormal-fp-math-f32", "preserve-sign");
  b_.ir.SetInsertPoint(llvm::BasicBlock::Create(b_.ir.getContext(), "", function));
  return *function;
}

llvm::Function& DeviceCode::function(const Computation& computation) {
  std::vector<llvm::Type*> types;
  for (DType dtype : computation.operands) types.push_back(b_.value_type(dtype));
  llvm::Function& function = start(computation.name, b_.value_type(computation.result), types);
  nvptx::Values arguments;
  for (llvm::Argument& argument : function.args()) arguments.push_back(&argument);
  b_.ir.CreateRet(computation.emit(b_, arguments));
  return function;
}

void DeviceCode::kernel(const std::string& name, std::span<const Computation> computations) {
  llvm::Type* pointer = llvm::PointerType::get(b_.ir.getContext(), nvptx::kGlobal);
  llvm::Function& function = start(name, b_.ir.getVoidTy(), {pointer, pointer});
  function.setCallingConv(llvm::CallingConv::PTX_Kernel);
  int64_t at = 0;
  for (const Computation& computation : computations) {
    nvptx::Values in;
    for (DType dtype : computation.operands) {
      llvm::Type* type = b_.memory_type(dtype);
      nvptx::Val address = b_.ir.CreateConstGEP1_64(b_.ir.getInt64Ty(), function.getArg(0),
                                                    static_cast<uint64_t>(at++));
      in.push_back(b_.from_memory(b_.ir.CreateLoad(type, address), dtype));
    }
    nvptx::Val address = b_.ir.CreateConstGEP1_64(b_.ir.getInt64Ty(), function.getArg(1),
                                                  static_cast<uint64_t>(at++));
    b_.ir.CreateStore(b_.to_memory(computation.emit(b_, in), computation.result), address);
  }
  b_.ir.CreateRetVoid();
}

void DeviceCode::clean_up() {
  owner_.check();
  owner_.clean_up(*machine());
}

std::string DeviceCode::ptx() {
  clean_up();
  return owner_.emit(*machine(), llvm::CodeGenFileType::AssemblyFile);
}

}  // namespace kiln::testing
