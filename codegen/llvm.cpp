#include <fmt/format.h>
#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/PassRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/CommandLine.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/SmallVectorMemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>

#include <algorithm>
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
    "{},{},instcombine<no-verify-fixpoint>,simplifycfg{})";
constexpr const char* kHoisting = "loop-mssa(loop-rotate,licm)";
constexpr const char* kWithoutHoisting = "loop(loop-rotate)";
constexpr const char* kMerging = "early-cse<memssa>";

// The NVPTX back end adds passes that merge values, addresses and accesses once more. In a large
// module, straight code for the most part, they took a third of all of compiling, and more in a
// process's first such module for their memory: strength reduction and value numbering compare each
// address with many others. Of what they do there ptxas feels the numbering only (without it
// attention of head dimension 128 takes 176 registers, with it 168: a third block on a
// multiprocessor); it goes into clean_up once, without its analysis of memory. A small module, and
// the rolled loops that profit from the others are small, is compiled soon enough with all of them.
constexpr unsigned kLarge = 3000;  // as emitted: a matmul has 2200, attention 3600 to 8100
constexpr const char* kNumbering = "gvn<no-memdep;no-load-pre>";
// After it, the guard of a loop may be left behind one of the first round to fetch, where it holds.
constexpr const char* kImplied = ",constraint-elimination";
constexpr std::string_view kRepeated[] = {"slsr", "nary-reassociate", "gvn", "early-cse",
                                          "load-store-vectorizer"};

// Hands on a back end's passes but the repeated ones. LLVM's other ways to leave one out are
// options of the whole process.
class LeanPasses : public llvm::legacy::PassManagerBase {
 public:
  explicit LeanPasses(llvm::legacy::PassManagerBase& passes) : passes_(passes) {}

  void add(llvm::Pass* pass) override {
    const auto* info = llvm::PassRegistry::getPassRegistry()->getPassInfo(pass->getPassID());
    if (info && std::ranges::count(kRepeated, std::string_view(info->getPassArgument())) > 0)
      delete pass;  // the list would own it
    else
      passes_.add(pass);
  }

 private:
  llvm::legacy::PassManagerBase& passes_;
};

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
  // Code that gives up hoisting for registers is better without the numbering, too.
  lean_ = machine.getTargetTriple().isNVPTX() && module_.getInstructionCount() > kLarge;
  const std::string list =
      fmt::format(kPasses, hoist ? kHoisting : kWithoutHoisting,
                  lean_ && hoist ? kNumbering : kMerging, lean_ ? kImplied : "");
  if (llvm::Error error = builder.parsePassPipeline(passes, list))
    throw InternalError("LLVM: " + llvm::toString(std::move(error)));
  passes.run(module_, modules);
}

std::string ModuleOwner::emit(llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallString<0> code;
  llvm::raw_svector_ostream out(code);
  llvm::legacy::PassManager passes;
  LeanPasses lean(passes);
  llvm::legacy::PassManagerBase* list = &passes;
  if (lean_) list = &lean;
  if (machine.addPassesToEmitFile(*list, out, nullptr, type))
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
