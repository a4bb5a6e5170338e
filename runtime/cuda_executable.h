// A kernel on a GPU, to be launched on the caller's stream.
//
//   auto kernel = cuda_executable(compile(device("cuda"), softmax()));   // once
//   const Memory* tensors[] = {&x, &y};                                  // device memory
//   kernel->launch({.tensors = tensors}, stream);                        // queued, not awaited
//
// runtime/function.h's handle does the same on every device; here is what only a GPU has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "codegen/nvptx.h"
#include "passes/reports.h"
#include "runtime/call_plan.h"
#include "runtime/compile.h"
#include "runtime/cuda_launch.h"
#include "runtime/cuda_memory.h"
#include "runtime/cuda_tensor_map.h"
#include "runtime/cuda_workspace.h"

namespace kiln {

// What all kernels of one GPU share; lives as long as the process.
struct CudaShared {
  explicit CudaShared(const cuda::Context& context)
      : context(context), pointer_check(context), workspaces(context) {}
  const cuda::Context& context;
  cuda::PointerCheck pointer_check;
  cuda::WorkspacePool workspaces;
};
CudaShared& cuda_shared(const cuda::Context& context);

class CudaExecutable : public Executable {
 public:
  // `kernel` is the one that `code` was compiled from, before any pass.
  CudaExecutable(CudaShared& shared, const Kernel& kernel, GpuCode code,
                 std::shared_ptr<const cuda::Module> module, Reports reports = {});

  // Checks the arguments and queues the kernel on `stream` (null: the legacy default stream).
  // Nothing is waited for, read back or hashed, and nothing allocated once the thread and the
  // stream have made a call as large; the call can be captured into a graph. Overlapping tensors
  // are not looked for. Without memory of the caller's the workspace is the stream's, and during
  // capture the graph's (cuda_workspace.h). A kernel with device_asserts or watches is waited for,
  // to look at them; a captured one is not, and nobody looks.
  void launch(const CallArguments& arguments, Stream stream,
              const Workspace& workspace = {}) const override;
  uint64_t workspace_bytes(const CallArguments& arguments) const;
  // The same by name; they allocate.
  void launch(const Bindings& bindings, Stream stream, const Workspace& workspace = {}) const;
  uint64_t workspace_bytes(const Bindings& bindings) const;

  // On the legacy default stream, to the end, so that a failing kernel fails here.
  void run(const Bindings& bindings) const override;

  const CallPlan& plan() const override { return plan_; }
  const GpuCode* gpu_code() const override { return &code_; }
  const GpuCode& code() const { return code_; }
  const cuda::Context& context() const { return shared_.context; }
  // One for each launch, in order.
  const std::vector<cuda::Function>& functions() const { return functions_; }
  // What the code should not do, such as spill; empty if there is nothing.
  const std::string& complaint() const { return complaint_; }

 private:
  void make_mappers(const Kernel& kernel);
  void fill(size_t launch, const CallArguments& arguments, const CallPlan::Frame& frame,
            uint64_t* parameters) const;
  void check_pointers(const CallArguments& arguments) const;
  void queue(const CallArguments& arguments, const CallPlan::Frame& call, Stream stream) const;
  void deliver_reports(const CallPlan::Frame& call, Stream stream) const;

  CudaShared& shared_;
  GpuCode code_;
  CallPlan plan_;
  const char* name_;
  Reports reports_;
  std::vector<std::string> tensor_texts_;  // "softmax: x"
  std::string workspace_text_;
  std::vector<cuda::Function> functions_;
  std::vector<std::vector<cuda::TensorMapper>> mappers_;  // of each launch
  std::string complaint_;
};

// The executable of what was compiled for a "cuda" device; UserError if it was for another.
const CudaExecutable& cuda_executable(const Executable& executable);
std::shared_ptr<const CudaExecutable> cuda_executable(const Function& function);

}  // namespace kiln
