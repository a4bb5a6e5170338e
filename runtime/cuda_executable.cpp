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

CallPlan make_plan(const Kernel& kernel, const GpuCode& code) {
  std::vector<std::vector<Slot>> slots;
  for (const GpuLaunch& launch : code.launches) slots.push_back(launch.slots);
  CallPlan plan(Signature(std::make_shared<const Kernel>(kernel)), slots);
  for (size_t i = 0; i < slots.size(); ++i)
    if (const size_t words = plan.parameter_words(i); words > cuda::kMostParameterWords)
      throw UserError(
          fmt::format("{}: a launch takes {} bytes of pointers, strides, dims, params and tensor "
                      "maps; expected at most {}",
                      kernel.name, 8 * words, 8 * cuda::kMostParameterWords),
          "give it fewer tensors");
  return plan;
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
                               std::shared_ptr<const cuda::Module> module, Reports reports)
    : shared_(shared),
      code_(std::move(code)),
      plan_(make_plan(kernel, code_)),
      name_(intern(kernel.name)),
      reports_(std::move(reports)) {
  workspace_text_ = fmt::format("{}: workspace", kernel.name);
  for (const TensorInfo& tensor : plan_.signature().tensors())
    tensor_texts_.push_back(fmt::format("{}: {}", kernel.name, tensor.name));
  for (const GpuLaunch& launch : code_.launches)
    functions_.emplace_back(module, launch.entry, launch.shared_bytes);
  make_mappers(kernel);
  complaint_ = complaint_of(*module, functions_);
}

void CudaExecutable::make_mappers(const Kernel& kernel) {
  const auto& tensors = plan_.signature().tensors();
  for (size_t i = 0; i < functions_.size(); ++i) {
    std::vector<cuda::TensorMapper>& made = mappers_.emplace_back();
    for (const CallPlan::MapSource& source : plan_.maps(i)) {
      const auto tensor = static_cast<size_t>(source.tensor);
      const bool written = tensor >= tensors.size() || tensors[tensor].written();
      made.emplace_back(context(), fmt::format("{}: {}", kernel.name, source.name), source.dtype,
                        source.rank, source.map, written);
    }
  }
}

// The parameters of an entered call. Only what is passed is written.
void CudaExecutable::fill(size_t launch, const CallArguments& arguments,
                          const CallPlan::Frame& frame, uint64_t* parameters) const {
  plan_.fill_slots(launch, arguments, frame, parameters);
  const std::vector<cuda::TensorMapper>& mappers = mappers_[launch];
  for (size_t i = 0; i < mappers.size(); ++i)
    mappers[i](plan_.tensor_of(plan_.maps(launch)[i].tensor, arguments, frame),
               parameters + i * CallPlan::kMapWords);
}

void CudaExecutable::check_pointers(const CallArguments& arguments) const {
  for (size_t i = 0; i < tensor_texts_.size(); ++i) {
    const Memory& memory = *arguments.tensors[i];
    if (shared_.pointer_check.knows(memory.data)) [[likely]]
      continue;
    const bool empty = std::find(memory.shape.begin(), memory.shape.end(), 0) != memory.shape.end();
    if (!empty) shared_.pointer_check(memory.data, tensor_texts_[i]);
  }
}

void CudaExecutable::launch(const CallArguments& arguments, Stream stream,
                            const Workspace& workspace) const {
  CallPlan::Frame& call = CallPlan::thread_frame();
  plan_.enter(arguments, call);
  check_pointers(arguments);
  const uint64_t bytes = plan_.workspace_bytes(call);
  plan_.check_workspace(workspace, bytes);
  if (workspace.data) shared_.pointer_check(workspace.data, workspace_text_);
  cuda::WorkspacePool::Lease lease;
  if (bytes > 0) {
    if (!workspace.data) lease = shared_.workspaces.lease(stream, bytes, name_);
    plan_.place_workspaces(workspace.data ? workspace.data : lease.memory(), call);
  }
  queue(arguments, call, stream);
  if (!reports_.empty() && !cuda::is_captured(context(), stream)) deliver_reports(call, stream);
}

void CudaExecutable::queue(const CallArguments& arguments, const CallPlan::Frame& call,
                           Stream stream) const {
  for (size_t i = 0; i < functions_.size(); ++i) {
    const std::array<int64_t, 3> grid = plan_.grid(i, call);
    alignas(kTensorMapAlignment) std::array<uint64_t, cuda::kMostParameterWords> parameters;
    fill(i, arguments, call, parameters.data());
    const GpuLaunch& launch = code_.launches[i];
    cuda::launch(functions_[i],
                 {.grid = grid, .block = {launch.threads, 1, 1}, .early = launch.early}, stream,
                 std::as_bytes(std::span(parameters.data(), plan_.parameter_words(i))),
                 plan_.maps(i).size());
  }
}

void CudaExecutable::deliver_reports(const CallPlan::Frame& call, Stream stream) const {
  context().synchronize(stream);  // a failing kernel fails here
  std::vector<std::byte> copy;
  reports_.deliver([&](const std::string& name, size_t bytes) {
    copy.resize(bytes);
    cuda::download(context(), copy.data(), plan_.workspace_named(name, call).data, bytes, stream);
    return copy.data();
  });
}

uint64_t CudaExecutable::workspace_bytes(const CallArguments& arguments) const {
  CallPlan::Frame& call = CallPlan::thread_frame();
  plan_.enter(arguments, call);
  return plan_.workspace_bytes(call);
}

void CudaExecutable::launch(const Bindings& bindings, Stream stream,
                            const Workspace& workspace) const {
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

std::shared_ptr<const CudaExecutable> cuda_executable(const Function& function) {
  return {function.executable(), &cuda_executable(*function.executable())};
}

}  // namespace kiln
