#include "runtime/interpreter_device.h"

#include "ir/canon.h"
#include "ir/print.h"
#include "runtime/call_plan.h"
#include "runtime/dump.h"
#include "runtime/host_memory.h"
#include "runtime/stats.h"

namespace kiln {
namespace {

// Without slots: it passes no parameters, and makes its workspaces itself.
CallPlan make_plan(const Kernel& kernel) {
  size_t launches = 0;
  for (OpId id : kernel.region(kernel.body).ops) launches += kernel.op(id).code == OpCode::Launch;
  return CallPlan(Signature(std::make_shared<const Kernel>(kernel)),
                  std::vector<std::vector<Slot>>(launches), CallPlan::kAnyGrid);
}

class InterpretedKernel : public Executable {
 public:
  explicit InterpretedKernel(const Kernel& kernel) : plan_(make_plan(kernel)) {}

  void run(const Bindings& bindings) const override {
    interpret(plan_.signature().kernel(), bindings);
  }
  void launch(const CallArguments& arguments, Stream stream,
              const Workspace& workspace) const override {
    plan_.enter(arguments, CallPlan::thread_frame());
    plan_.check_no_stream(stream, "interpreter");
    plan_.check_workspace(workspace, 0);
    run(bind(plan_.signature(), plan_.by_name(arguments)));
  }
  const CallPlan& plan() const override { return plan_; }

 private:
  CallPlan plan_;
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
