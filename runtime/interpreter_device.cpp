#include "runtime/interpreter_device.h"

#include "ir/canon.h"
#include "ir/print.h"
#include "runtime/dump.h"
#include "runtime/host_memory.h"
#include "runtime/stats.h"

namespace kiln {
namespace {

class InterpretedKernel : public Executable {
 public:
  explicit InterpretedKernel(const Kernel& kernel) : kernel_(kernel) {}
  void run(const Bindings& bindings) const override { interpret(kernel_, bindings); }

 private:
  Kernel kernel_;
};

class InterpreterDevice : public HostMemoryDevice {
 public:
  std::string_view name() const override { return "interpreter"; }
  std::string description() const override { return "reference interpreter, one thread, slow"; }
  std::string target() const override { return "interpreter"; }
  std::unique_ptr<Executable> compile(const Kernel& kernel) override {
    if (Dump dump{kernel.name, hash(kernel)}) dump.write("00_traced.tile", print(kernel));
    count_compilation(0, 0, 0);
    return std::make_unique<InterpretedKernel>(kernel);
  }
};

}  // namespace

Device& interpreter_device() {
  static InterpreterDevice device;
  return device;
}

}  // namespace kiln
