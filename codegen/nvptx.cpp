// A lowered kernel → LLVM module → passes → PTX text.
#include "codegen/nvptx.h"

#include <fmt/format.h>
#include <llvm/MC/TargetRegistry.h>

#include <algorithm>

#include "codegen/llvm_impl.h"
#include "codegen/nvptx_emit_impl.h"
#include "codegen/nvptx_text_impl.h"
#include "ir/error.h"
#include "ir/walk.h"

namespace kiln {
namespace nvptx {
namespace {

std::unique_ptr<llvm::TargetMachine> target_machine(const GpuTarget& target, int ptx) {
  initialize_llvm();
  const llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found) throw InternalError("LLVM: " + error);
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      triple, std::string(target.name), fmt::format("+ptx{}", ptx), llvm::TargetOptions(),
      std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
}

// ASCII's, whatever the locale of the program.
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Letters, digits and underscores of the kernel's name; its launches are numbered if several. Of
// such names PTX takes no lone underscore, and one is its own.
std::string entry_name(const Kernel& kernel, size_t launch, size_t launches) {
  std::string name;
  for (char c : kernel.name) name += is_letter(c) || is_digit(c) ? c : '_';
  if (name.empty() || is_digit(name[0]) || name == "_" || name == "WARP_SZ")
    name = "kernel_" + name;
  return launches == 1 ? name : fmt::format("{}_{}", name, launch);
}

// What the passes would have made fit may not, in a text that they were not run on.
template <class Emit>
GpuLaunch as_written(const Kernel& kernel, Emit&& emit) {
  try {
    return emit();
  } catch (const InternalError& error) {
    if (!first_late_op(kernel)) throw;
    throw UserError(
        error.loc(), error.message(),
        "no pass runs on a kernel with roles or asynchronous ops: what its text chooses, "
        "layouts above all, must fit");
  }
}

class Compilation {
 public:
  explicit Compilation(const Kernel& kernel)
      : target_(gpu_target(kernel.target)), owner_(kernel.name) {
    machine_ = target_machine(target_, target_.ptx);
    owner_.set_target(*machine_);
    std::vector<const Op*> launches;
    for (OpId id : kernel.region(kernel.body).ops)
      if (kernel.op(id).code == OpCode::Launch) launches.push_back(&kernel.op(id));
    int ptx = target_.ptx;
    bool roles = false;
    for (size_t i = 0; i < launches.size(); ++i) {
      Emitter emitter(kernel, target_, owner_.module());
      launches_.push_back(as_written(kernel, [&] {
        return emitter.emit(*launches[i], entry_name(kernel, i, launches.size()),
                            {.before = i > 0, .after = i + 1 < launches.size()});
      }));
      ptx = std::max(ptx, emitter.b.ptx);
      roles = roles || roles_op(kernel, *launches[i]);
    }
    if (ptx > target_.ptx) machine_ = target_machine(target_, ptx);
    owner_.check();
    owner_.clean_up(*machine_, !roles);
  }

  std::string text() const { return owner_.text(); }
  GpuCode code() {
    std::string ptx = owner_.emit(*machine_, llvm::CodeGenFileType::AssemblyFile);
    return {with_wide_minima(without_half_flushes(std::move(ptx))), launches_};
  }

 private:
  const GpuTarget& target_;
  ModuleOwner owner_;
  std::unique_ptr<llvm::TargetMachine> machine_;
  std::vector<GpuLaunch> launches_;
};

}  // namespace
}  // namespace nvptx

GpuCode compile_ptx(const Kernel& kernel) {
  return nvptx::Compilation(kernel).code();
}

std::string gpu_llvm_ir(const Kernel& kernel) {
  return nvptx::Compilation(kernel).text();
}

}  // namespace kiln
