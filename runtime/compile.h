// From a kernel to something that runs: compiled once a process, however many ask.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/device.h"
#include "runtime/launch.h"
#include "runtime/signature.h"
#include "runtime/stats.h"

namespace kiln {

// A kernel ready to run on one device. Cheap to copy; may be used from many threads at once.
class Compiled {
 public:
  Compiled(std::shared_ptr<const Signature> signature, std::shared_ptr<const Executable> executable)
      : signature_(std::move(signature)), executable_(std::move(executable)) {}

  const Signature& signature() const { return *signature_; }
  const std::shared_ptr<const Executable>& executable() const { return executable_; }
  // Checks the arguments (runtime/launch.h) and runs to the end.
  void operator()(const Arguments& arguments) const {
    executable_->run(bind(*signature_, arguments));
  }

 private:
  std::shared_ptr<const Signature> signature_;
  std::shared_ptr<const Executable> executable_;
};

// Verifies the kernel, brings it into canonical form and compiles it, unless this process has its
// code for the device's target already. Threads that ask for one kernel at once compile it once.
Compiled compile(Device& device, const Kernel& kernel);

// So many kernels are remembered, those used last. Handles keep what they run, remembered or not.
constexpr size_t kMostCompiled = 1024;
// Forgets what this process has compiled. Handles that were given out stay good.
void forget_compiled();

// All in one: compile, bind, run.
void run(Device& device, const Kernel& kernel, const Arguments& arguments);

}  // namespace kiln
