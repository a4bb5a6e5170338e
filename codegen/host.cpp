// A lowered kernel → LLVM module → passes → object or text.
#include "codegen/host.h"

#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>

#include "codegen/host_emit_impl.h"
#include "codegen/host_target_impl.h"
#include "codegen/llvm_impl.h"
#include "ir/error.h"

namespace kiln {
namespace host {
namespace {

class Compilation {
 public:
  Compilation(const Kernel& kernel, const Target& target)
      : machine_(target_machine(target)), owner_(kernel.name) {
    owner_.set_target(*machine_);
    for (OpId id : kernel.region(kernel.body).ops) {
      const Op& op = kernel.op(id);
      if (op.code != OpCode::Launch) continue;
      const std::string symbol = fmt::format("kiln_launch_{}", launches_.size());
      launches_.push_back(Emitter(kernel, target, owner_.module()).emit(op, symbol));
    }
    owner_.check();
    owner_.clean_up(*machine_);
  }

  std::string text() const { return owner_.text(); }
  std::string machine_code(llvm::CodeGenFileType type) { return owner_.emit(*machine_, type); }
  std::vector<HostLaunch> launches() const { return launches_; }

 private:
  std::unique_ptr<llvm::TargetMachine> machine_;
  ModuleOwner owner_;
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
