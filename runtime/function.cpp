#include "runtime/function.h"

#include <fmt/format.h>

#include "codegen/host.h"
#include "codegen/nvptx.h"
#include "ir/error.h"
#include "ir/print.h"
#include "ir/walk.h"
#include "passes/reports.h"
#include "runtime/explain.h"
#include "runtime/lowering.h"

namespace kiln {
namespace {

// What code for the kernel is made for: the device's architecture, or the kernel's own if it is
// scheduled for one; empty for the host.
std::string target_of(const Device& device, const Kernel& kernel) {
  if (device.tier() != Tier::Sm80) return "";
  return !kernel.target.empty() && first_late_op(kernel) ? kernel.target : device.target();
}

// As the device compiles it: with workspaces in place of device_asserts and watches.
Kernel compiled_kernel(const Device& device, const Kernel& kernel) {
  return instrument(kernel, device.tier() == Tier::Host ? Watches::Direct : Watches::Recorded)
      .kernel;
}

}  // namespace

void Function::refuse_released() {
  throw UserError("a released handle was used: it was default-constructed or moved from",
                  "the one that compile returned; copies of it are cheap");
}

void Function::check_device(const std::string& tensor, const Memory& memory) const {
  if (!memory.device || memory.device->name() == device_->name()) return;
  throw UserError(
      fmt::format("{}: {}: expected memory of {}, got memory of {}", signature_->kernel().name,
                  tensor, device_->name(), memory.device->name()),
      "copy the tensor there, or call a handle that was compiled for the device where it is");
}

void Function::check_devices(const CallArguments& arguments) const {
  const std::vector<TensorInfo>& expected = signature_->tensors();
  if (arguments.tensors.size() != expected.size()) return;  // as launch will say
  for (size_t i = 0; i < expected.size(); ++i)
    if (arguments.tensors[i]) check_device(expected[i].name, *arguments.tensors[i]);
}

Bindings Function::bind(const Arguments& arguments) const {
  Bindings bindings = kiln::bind(signature(), arguments);
  for (const auto& [name, memory] : bindings.tensors) check_device(name, memory);
  return bindings;
}

void Function::refuse_text(const char* what, const char* instead) const {
  throw UserError(fmt::format("{}: there is no {} of a kernel for {}", signature_->kernel().name,
                              what, device_->name()),
                  instead);
}

std::string Function::tile() const {
  return print(signature().kernel());
}

std::string Function::ir(std::string_view pass) const {
  const Kernel& kernel = signature().kernel();
  if (!device_->tier()) refuse_text("IR after a pass", "tile(): no pass runs on it");
  return print(after_pass(compiled_kernel(*device_, kernel), *device_->tier(),
                          target_of(*device_, kernel), pass));
}

Kernel Function::lowered() const {
  const Kernel& kernel = signature().kernel();
  return kiln::lowered(compiled_kernel(*device_, kernel), *device_->tier(),
                       target_of(*device_, kernel));
}

std::string Function::llvm() const {
  alive();
  if (!device_->tier()) refuse_text("LLVM IR", "tile(): that is what runs");
  return device_->tier() == Tier::Host ? host_llvm_ir(lowered()) : gpu_llvm_ir(lowered());
}

std::string Function::ptx() const {
  alive();
  const GpuCode* code = executable_->gpu_code();
  if (!code) refuse_text("PTX", "assembly() on the host; compile it for cuda or an emulator");
  return code->ptx;
}

std::string Function::assembly() const {
  alive();
  if (device_->tier() != Tier::Host) refuse_text("assembly", "ptx() of code for a GPU");
  return host_assembly(lowered());
}

std::string Function::explain() const {
  const Kernel& kernel = signature().kernel();
  if (device_->tier() != Tier::Sm80)
    refuse_text("explanation", "compile it for cuda or an emulator: it tells a GPU's choices");
  return kiln::explain(kernel, target_of(*device_, kernel));
}

}  // namespace kiln
