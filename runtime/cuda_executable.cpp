#include "runtime/cuda_executable.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <utility>

#include "ir/error.h"
#include "ir/loc.h"

namespace kiln {
namespace {

constexpr size_t kMostSlots = 512;  // 4 KiB of parameters, which every GPU and driver takes

CallPlan make_plan(const Kernel& kernel, const GpuCode& code) {
  std::vector<std::vector<Slot>> slots;
  for (const GpuLaunch& launch : code.launches) {
    if (launch.slots.size() > kMostSlots)
      throw UserError(fmt::format("{}: a launch takes {} pointers, strides, dims and params; "
                                  "expected at most {}",
                                  kernel.name, launch.slots.size(), kMostSlots),
                      "give it fewer tensors");
    slots.push_back(launch.slots);
  }
  return CallPlan(Signature(std::make_shared<const Kernel>(kernel)), slots);
}

// A thread calls one kernel at a time, so one frame serves all its kernels.
CallPlan::Frame& frame() {
  thread_local CallPlan::Frame frame;
  return frame;
}

std::string complaint_of(const cuda::Module& module, const std::vector<cuda::Function>& functions) {
  std::string text;
  for (const cuda::Function& function : functions)
    if (std::string one = function.local_memory_complaint(); !one.empty())
      text += (text.empty() ? "" : "\n") + one;
  // The assembler's advisories ("Potential Performance Loss: …") are numbered C75xx.
  if (text.empty() && module.log().find("(C75") != std::string::npos)
    text = fmt::format("the driver's compiler warns of '{}':\n{}", module.name(), module.log());
  return text;
}

}  // namespace

CudaShared& cuda_shared(const cuda::Context& context) {
  static std::mutex mutex;
  static auto& all = *new std::map<const cuda::Context*, CudaShared>;  // outlives all executables
  std::lock_guard lock(mutex);
  return all.try_emplace(&context, context).first->second;
}

CudaExecutable::CudaExecutable(CudaShared& shared, const Kernel& kernel, GpuCode code,
                               std::shared_ptr<const cuda::Module> module)
    : shared_(shared),
      code_(std::move(code)),
      plan_(make_plan(kernel, code_)),
      name_(intern(kernel.name)) {
  workspace_text_ = fmt::format("{}: workspace", kernel.name);
  for (const TensorInfo& tensor : plan_.signature().tensors())
    tensor_texts_.push_back(fmt::format("{}: {}", kernel.name, tensor.name));
  for (const GpuLaunch& launch : code_.launches)
    functions_.emplace_back(module, launch.entry, launch.shared_bytes);
  complaint_ = complaint_of(*module, functions_);
}

void CudaExecutable::check_pointers(const CallArguments& arguments) const {
  for (size_t i = 0; i < tensor_texts_.size(); ++i) {
    const Memory& memory = *arguments.tensors[i];
    const bool empty = std::find(memory.shape.begin(), memory.shape.end(), 0) != memory.shape.end();
    if (!empty) shared_.pointer_check(memory.data, tensor_texts_[i]);
  }
}

void CudaExecutable::check_workspace(const void* workspace) const {
  if (reinterpret_cast<uintptr_t>(workspace) % CallPlan::kWorkspaceAlignment != 0)
    throw UserError(fmt::format("{}: workspace: address {} is not a multiple of {}", name_,
                                workspace, CallPlan::kWorkspaceAlignment));
  shared_.pointer_check(workspace, workspace_text_);
}

void CudaExecutable::launch(const CallArguments& arguments, cuda::CUstream stream,
                            void* workspace) const {
  CallPlan::Frame& call = frame();
  plan_.enter(arguments, call);
  check_pointers(arguments);
  cuda::WorkspacePool::Lease lease{};
  if (const uint64_t bytes = plan_.workspace_bytes(call); bytes > 0) {
    if (workspace) {
      check_workspace(workspace);
    } else {
      lease = shared_.workspaces.lease(stream, bytes, name_);
      workspace = lease.memory;
    }
    plan_.place_workspaces(workspace, call);
  }
  for (size_t i = 0; i < functions_.size(); ++i) {
    std::array<uint64_t, kMostSlots> slots;  // not initialised: only what is filled is passed
    plan_.fill_slots(i, arguments, call, slots.data());
    cuda::launch(functions_[i],
                 {.grid = plan_.grid(i, call), .block = {code_.launches[i].threads, 1, 1}}, stream,
                 std::as_bytes(std::span(slots.data(), plan_.slot_count(i))));
  }
}

uint64_t CudaExecutable::workspace_bytes(const CallArguments& arguments) const {
  CallPlan::Frame& call = frame();
  plan_.enter(arguments, call);
  return plan_.workspace_bytes(call);
}

void CudaExecutable::launch(const Bindings& bindings, cuda::CUstream stream,
                            void* workspace) const {
  launch(plan_.positional(bindings).view(), stream, workspace);
}

uint64_t CudaExecutable::workspace_bytes(const Bindings& bindings) const {
  return workspace_bytes(plan_.positional(bindings).view());
}

void CudaExecutable::run(const Bindings& bindings) const {
  launch(bindings, nullptr);
  context().synchronize(nullptr);
}

const CudaExecutable& cuda_executable(const Executable& executable) {
  if (const auto* found = dynamic_cast<const CudaExecutable*>(&executable)) return *found;
  throw UserError("expected a kernel that was compiled for a cuda device",
                  "compile(device(\"cuda\"), kernel)");
}

std::shared_ptr<const CudaExecutable> cuda_executable(const Compiled& compiled) {
  return {compiled.executable(), &cuda_executable(*compiled.executable())};
}

}  // namespace kiln
