// What this CPU can do, as LLVM sees it.
#include <fmt/format.h>
#include <llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/TargetParser/Host.h>

#include "codegen/host_target_impl.h"
#include "codegen/llvm_impl.h"
#include "ir/error.h"

namespace kiln::host {
namespace {

void fill_in(Target& target) {
  std::unique_ptr<llvm::TargetMachine> machine = target_machine(target);
  const llvm::MCSubtargetInfo* cpu = machine->getMCSubtargetInfo();
  auto has = [&](const char* features) { return cpu->checkFeatures(features); };
  target.fma = has("+fma");
  target.f16c = has("+f16c");
  target.avx512 = has("+avx512f,+avx512bw,+avx512dq,+avx512vl");
  target.lanes = target.avx512 ? 16 : has("+avx2") ? 8 : 4;
  target.registers = target.avx512 ? 32 : 16;
}

}  // namespace

std::unique_ptr<llvm::TargetMachine> target_machine(const Target& target) {
  initialize_llvm();
  const llvm::Triple triple(llvm::sys::getProcessTriple());
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found) throw InternalError("LLVM: " + error);
  llvm::TargetOptions options;
  return std::unique_ptr<llvm::TargetMachine>(
      found->createTargetMachine(triple, target.cpu, target.features, options, llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
}

const Target& this_cpu() {
  static const Target target = [] {
    initialize_llvm();
    auto builder = llvm::orc::JITTargetMachineBuilder::detectHost();
    if (!builder) throw InternalError("LLVM: " + llvm::toString(builder.takeError()));
    Target found{builder->getCPU(), builder->getFeatures().getString()};
    fill_in(found);
    return found;
  }();
  return target;
}

Target named_cpu(const std::string& cpu) {
  auto any = target_machine({"x86-64", ""});
  if (!any->getMCSubtargetInfo()->isCPUStringValid(cpu))
    throw InternalError("LLVM knows no CPU '" + cpu + "'");
  Target target{cpu, ""};
  fill_in(target);
  return target;
}

}  // namespace kiln::host
