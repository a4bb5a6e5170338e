// A kernel ready to run on one device: the handle that programs keep and call.
//
//     Function f = compile(device("cuda"), kernel);           // once: compiled, or loaded
//     const Memory* tensors[] = {&x, &y};                     // in the order of f.signature()
//     f({.tensors = tensors, .params = {&scale, 1}}, stream); // checked and queued, not awaited
//
// Copies share what was compiled, and outlive all caches; any thread may call any copy, also at
// once. A handle that was default-constructed or moved from is released: using it is a UserError.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/call_plan.h"
#include "runtime/device.h"
#include "runtime/launch.h"
#include "runtime/signature.h"

namespace kiln {

class Function {
 public:
  Function() = default;
  Function(Device& device, std::shared_ptr<const Signature> signature,
           std::shared_ptr<const Executable> executable)
      : device_(&device), signature_(std::move(signature)), executable_(std::move(executable)) {}

  const Signature& signature() const { return alive(), *signature_; }
  Device& device() const { return alive(), *device_; }
  const std::shared_ptr<const Executable>& executable() const { return alive(), executable_; }

  // By position: checks and launches, nothing else. On cuda the work is queued on the stream and
  // nothing is compiled, allocated, waited for or read back once the thread and the stream have
  // made a call as large, so a graph may capture it; elsewhere it runs to the end. UserError naming
  // the argument, what was expected and what came. Overlapping tensors are not looked for.
  void operator()(const CallArguments& arguments, Stream stream,
                  const Workspace& workspace = {}) const {
    alive();
    for (const Memory* tensor : arguments.tensors)
      if (tensor && tensor->device && tensor->device != device_) [[unlikely]]
        check_devices(arguments);
    executable_->launch(arguments, stream, workspace);
  }
  // By name, to the end (runtime/launch.h).
  void operator()(const Arguments& arguments) const { executable()->run(bind(arguments)); }
  // The arguments as the kernel takes them (runtime/launch.h); UserError if they are not that, or
  // on another device.
  Bindings bind(const Arguments& arguments) const;

  // Bytes of workspace that no call with dims within the limits exceeds; 0 if it needs none.
  // UserError naming a dim that has no limit and matters.
  uint64_t workspace_bytes(const Limits& limits) const {
    return alive(), executable_->plan().workspace_bytes(limits);
  }

  // What the compiler made of it, as text; made when asked for.
  std::string tile() const;                     // the kernel as traced
  std::string ir(std::string_view pass) const;  // after that pass; UserError listing the passes
  std::string llvm() const;                     // optimised LLVM IR; UserError on the interpreter
  std::string ptx() const;                      // UserError on what runs no PTX
  std::string assembly() const;                 // of the CPU; UserError on other devices
  // What was chosen for the GPU and why (runtime/explain.h); UserError on what is for none.
  std::string explain() const;

 private:
  void alive() const {
    if (!executable_) [[unlikely]]
      refuse_released();
  }
  [[noreturn]] static void refuse_released();
  // UserError naming a tensor whose memory is said to be another device's. One GPU is several
  // devices, by the architecture of their code.
  [[gnu::cold]] void check_devices(const CallArguments& arguments) const;
  void check_device(const std::string& tensor, const Memory& memory) const;
  [[noreturn]] void refuse_text(const char* what, const char* instead) const;
  Kernel lowered() const;

  Device* device_ = nullptr;  // lives as long as the process
  std::shared_ptr<const Signature> signature_;
  std::shared_ptr<const Executable> executable_;
};

}  // namespace kiln
