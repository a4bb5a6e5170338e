// A lowered kernel → LLVM module → passes → object or text.
#include "codegen/host.h"

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>

#include "codegen/host_emit_impl.h"
#include "codegen/host_target_impl.h"
#include "ir/error.h"

namespace kiln {
namespace host {
namespace {

// Our loops and vectors are as they should be: what is left to do is promoting variables, merging
// address arithmetic and moving it out of loops. A full O2 gives the same speed for five times the
// time.
constexpr const char* kPasses =
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
    "loop-mssa(loop-rotate,licm),early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)";

void on_diagnostic(const llvm::DiagnosticInfo* diagnostic, void* context) {
  if (diagnostic->getSeverity() != llvm::DS_Error) return;
  llvm::raw_string_ostream out(*static_cast<std::string*>(context));
  llvm::DiagnosticPrinterRawOStream printer(out);
  diagnostic->print(printer);
}

class Compilation {
 public:
  Compilation(const Kernel& kernel, const Target& target)
      : machine_(target_machine(target)), module_(kernel.name, context_) {
    context_.setDiagnosticHandlerCallBack(on_diagnostic, &errors_);
    module_.setTargetTriple(machine_->getTargetTriple());
    module_.setDataLayout(machine_->createDataLayout());
    for (OpId id : kernel.region(kernel.body).ops) {
      const Op& op = kernel.op(id);
      if (op.code != OpCode::Launch) continue;
      const std::string symbol = fmt::format("kiln_launch_{}", launches_.size());
      launches_.push_back(Emitter(kernel, target, module_).emit(op, symbol));
    }
    check();
    optimize();
  }

  std::string text() const {
    std::string text;
    llvm::raw_string_ostream out(text);
    module_.print(out, nullptr);
    return text;
  }

  std::string machine_code(llvm::CodeGenFileType type) {
    llvm::SmallString<0> code;
    llvm::raw_svector_ostream out(code);
    llvm::legacy::PassManager passes;
    if (machine_->addPassesToEmitFile(passes, out, nullptr, type))
      throw InternalError("LLVM cannot emit code for this CPU");
    passes.run(module_);
    if (!errors_.empty()) throw InternalError("LLVM: " + errors_);
    return std::string(code);
  }

  std::vector<HostLaunch> launches() const { return launches_; }

 private:
  void check() {
    std::string problem;
    llvm::raw_string_ostream out(problem);
    if (llvm::verifyModule(module_, &out)) throw InternalError("malformed LLVM IR: " + problem);
  }

  void optimize() {
    llvm::LoopAnalysisManager loops;
    llvm::FunctionAnalysisManager functions;
    llvm::CGSCCAnalysisManager cycles;
    llvm::ModuleAnalysisManager modules;
    llvm::PassBuilder builder(machine_.get());
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(cycles);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, cycles, modules);
    llvm::ModulePassManager passes;
    if (llvm::Error error = builder.parsePassPipeline(passes, kPasses))
      throw InternalError("LLVM: " + llvm::toString(std::move(error)));
    passes.run(module_, modules);
  }

  std::unique_ptr<llvm::TargetMachine> machine_;
  std::string errors_;
  llvm::LLVMContext context_;
  llvm::Module module_;
  std::vector<HostLaunch> launches_;
};

}  // namespace

HostObject compile(const Kernel& kernel, const Target& target) {
  Compilation compilation(kernel, target);
  return {compilation.machine_code(llvm::CodeGenFileType::ObjectFile), compilation.launches()};
}

std::string llvm_ir(const Kernel& kernel, const Target& target) {
  return Compilation(kernel, target).text();
}

std::string assembly(const Kernel& kernel, const Target& target) {
  return Compilation(kernel, target).machine_code(llvm::CodeGenFileType::AssemblyFile);
}

}  // namespace host

const std::string& host_cpu() {
  static const std::string key = host::this_cpu().cpu + " " + host::this_cpu().features;
  return key;
}

std::string llvm_version() {
  return LLVM_VERSION_STRING;
}

HostObject compile_host(const Kernel& kernel) {
  return host::compile(kernel, host::this_cpu());
}
std::string host_llvm_ir(const Kernel& kernel) {
  return host::llvm_ir(kernel, host::this_cpu());
}
std::string host_assembly(const Kernel& kernel) {
  return host::assembly(kernel, host::this_cpu());
}

}  // namespace kiln
