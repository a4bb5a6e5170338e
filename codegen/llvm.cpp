#include <fmt/format.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>

#include <mutex>

#include "codegen/llvm_impl.h"
#include "ir/error.h"

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace kiln {
namespace {

constexpr const char* kPasses =
    "function(sroa,early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg,"
    "{},early-cse<memssa>,instcombine<no-verify-fixpoint>,simplifycfg)";
constexpr const char* kHoisting = "loop-mssa(loop-rotate,licm)";
constexpr const char* kWithoutHoisting = "loop(loop-rotate)";

[[noreturn]] void on_fatal_error(void*, const char* reason, bool) {
  throw InternalError(std::string("LLVM: ") + reason);
}

void on_diagnostic(const llvm::DiagnosticInfo* diagnostic, void* context) {
  if (diagnostic->getSeverity() != llvm::DS_Error) return;
  llvm::raw_string_ostream out(*static_cast<std::string*>(context));
  llvm::DiagnosticPrinterRawOStream printer(out);
  diagnostic->print(printer);
}

}  // namespace

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    // Shared-memory pointers of 32 bits; LLVM has no other way to say so.
    const char* arguments[] = {"kiln", "-nvptx-short-ptr"};
    llvm::cl::ParseCommandLineOptions(2, arguments, "", &llvm::nulls());
    llvm::install_fatal_error_handler(on_fatal_error);
  });
}

ModuleOwner::ModuleOwner(const std::string& name) : module_(name, context_) {
  context_.setDiagnosticHandlerCallBack(on_diagnostic, &errors_);
}

void ModuleOwner::set_target(const llvm::TargetMachine& machine) {
  module_.setTargetTriple(machine.getTargetTriple());
  module_.setDataLayout(machine.createDataLayout());
}

void ModuleOwner::check() const {
  std::string problem;
  llvm::raw_string_ostream out(problem);
  if (llvm::verifyModule(module_, &out)) throw InternalError("malformed LLVM IR: " + problem);
}

void ModuleOwner::clean_up(llvm::TargetMachine& machine, bool hoist) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager cycles;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(cycles);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, cycles, modules);
  llvm::ModulePassManager passes;
  const std::string list = fmt::format(kPasses, hoist ? kHoisting : kWithoutHoisting);
  if (llvm::Error error = builder.parsePassPipeline(passes, list))
    throw InternalError("LLVM: " + llvm::toString(std::move(error)));
  passes.run(module_, modules);
}

std::string ModuleOwner::emit(llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallString<0> code;
  llvm::raw_svector_ostream out(code);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, out, nullptr, type))
    throw InternalError("LLVM cannot emit code for this target");
  passes.run(module_);
  if (!errors_.empty()) throw InternalError("LLVM: " + errors_);
  return std::string(code);
}

std::string ModuleOwner::text() const {
  std::string text;
  llvm::raw_string_ostream out(text);
  module_.print(out, nullptr);
  return text;
}

}  // namespace kiln
