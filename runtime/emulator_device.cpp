#include "runtime/emulator_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "ir/error.h"
#include "passes/gpu_target.h"
#include "passes/reports.h"
#include "runtime/call_plan.h"
#include "runtime/environment.h"
#include "runtime/gpu_code.h"
#include "runtime/host_memory.h"
#include "runtime/ptx/tensor_map.h"
#include "runtime/stats.h"
#include "runtime/tensor_map.h"
#include "runtime/thread_pool.h"

namespace kiln {
namespace {

// The bytes that a tensor's elements lie in; tensors that overlap are one range to the emulator,
// which knows a byte by one name.
struct Span {
  uint64_t begin, end;
  std::string name;
  bool writable;
};

Span span_of(const Memory& memory, std::string name, bool writable) {
  auto begin = reinterpret_cast<uint64_t>(memory.data), end = begin;
  const size_t size = size_of(memory.dtype);
  if (std::find(memory.shape.begin(), memory.shape.end(), 0) == memory.shape.end()) {
    end += size;
    for (size_t axis = 0; axis < memory.shape.size(); ++axis) {
      const int64_t reach =
          (memory.shape[axis] - 1) * memory.strides[axis] * static_cast<int64_t>(size);
      (reach < 0 ? begin : end) += static_cast<uint64_t>(reach);
    }
  }
  return {begin, end, std::move(name), writable};
}

void add_spans(std::vector<Span> spans, ptx::Memory& memory) {
  std::erase_if(spans, [](const Span& span) { return span.begin == span.end; });
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> merged;
  for (Span& span : spans) {
    if (merged.empty() || span.begin >= merged.back().end) {
      merged.push_back(std::move(span));
      continue;
    }
    Span& last = merged.back();
    last.end = std::max(last.end, span.end);
    last.name += fmt::format(", {}", span.name);
    last.writable |= span.writable;
  }
  for (const Span& span : merged)
    memory.add(reinterpret_cast<const void*>(span.begin), span.end - span.begin, span.name,
               span.writable);
}

// Memory of one call, as full of garbage as a GPU's.
class OwnWorkspace {
 public:
  explicit OwnWorkspace(size_t bytes) : memory_(allocate_aligned(bytes)) {
    std::memset(memory_, 0xa5, bytes);
  }
  ~OwnWorkspace() { release_aligned(memory_); }
  OwnWorkspace(const OwnWorkspace&) = delete;
  void* data() const { return memory_; }

 private:
  void* memory_;
};

ptx::Type map_type(DType dtype) {
  switch (dtype) {
    case F16: return ptx::Type::F16;
    case BF16: return ptx::Type::BF16;
    case F32: return ptx::Type::F32;
    case F64: return ptx::Type::F64;
    case I16:
    case U16: return ptx::Type::U16;
    case I32: return ptx::Type::S32;
    case U32: return ptx::Type::U32;
    case I64: return ptx::Type::S64;
    case U64: return ptx::Type::U64;
    default: return ptx::Type::U8;
  }
}

// What stands for the map that a driver makes.
ptx::TensorMapBytes emulated_map(const std::string& text, const CallPlan::MapSource& source,
                                 const Memory& tensor) {
  const bool empty = is_empty(tensor);
  if (!empty) check_mapped(text, source.dtype, source.map, tensor);
  const MapAxes axes = map_axes(source.map, tensor);
  ptx::TensorMap map;
  map.rank = static_cast<int>(axes.rank);
  map.type = map_type(source.dtype);
  map.address = empty ? 0 : reinterpret_cast<uint64_t>(tensor.data);
  for (size_t axis = 0; axis < axes.rank; ++axis) {
    map.extents[axis] = empty ? 0 : axes.extents[axis];  // all is outside: reads zeros
    map.strides[axis] = axis == 0 ? 0 : axes.strides[axis - 1];
    map.box[axis] = axes.box[axis];
  }
  map.swizzle =
      static_cast<uint32_t>(source.map.panel) * static_cast<uint32_t>(size_of(source.dtype));
  return ptx::encode(map);
}

class EmulatedKernel : public Executable {
 public:
  EmulatedKernel(const Kernel& kernel, GpuCode code, Reports reports = {})
      : code_(std::move(code)),
        plan_(make_plan(kernel, code_)),
        program_(parse(code_)),
        reports_(std::move(reports)) {
    for (size_t i = 0; i < code_.launches.size(); ++i)
      for (const CallPlan::MapSource& source : plan_.maps(i))
        check_map(text_of(source), source.dtype, static_cast<size_t>(source.rank), source.map);
  }

  void run(const Bindings& bindings) const override {
    launch(plan_.positional(bindings).view(), nullptr, {});
  }

  void launch(const CallArguments& arguments, Stream stream,
              const Workspace& workspace) const override {
    plan_.check_no_stream(stream, "an emulator");
    for (const ptx::Report& report : run(arguments, workspace, emulator_options()))
      if (!report.findings.empty()) throw DeviceError(text_of(report));
  }
  const CallPlan& plan() const override { return plan_; }
  const GpuCode* gpu_code() const override { return &code_; }

  std::vector<ptx::Report> run(const Bindings& bindings, const ptx::Options& options) const {
    return run(plan_.positional(bindings).view(), {}, options);
  }

  std::vector<ptx::Report> run(const CallArguments& arguments, const Workspace& workspace,
                               const ptx::Options& options) const {
    CallPlan::Frame frame;
    plan_.enter(arguments, frame);
    const uint64_t bytes = plan_.workspace_bytes(frame);
    plan_.check_workspace(workspace, bytes);
    OwnWorkspace own(workspace.data ? 0 : bytes);
    plan_.place_workspaces(workspace.data ? workspace.data : own.data(), frame);
    ptx::Memory memory;
    add_spans(spans(arguments, frame), memory);

    std::vector<ptx::Report> reports;
    for (size_t i = 0; i < code_.launches.size(); ++i) {
      const GpuLaunch& launch = code_.launches[i];
      const std::array<int64_t, 3> grid = plan_.grid(i, frame);
      if (*std::min_element(grid.begin(), grid.end()) <= 0) continue;
      std::vector<uint64_t> slots(plan_.parameter_words(i));
      plan_.fill_slots(i, arguments, frame, slots.data());
      fill_maps(i, arguments, frame, slots.data());
      auto extent = [&](size_t axis) { return static_cast<uint32_t>(grid[axis]); };
      reports.push_back(ptx::launch(program_, launch.entry, {extent(0), extent(1), extent(2)},
                                    {static_cast<uint32_t>(launch.threads)},
                                    static_cast<size_t>(launch.shared_bytes),
                                    std::as_bytes(std::span(slots)), memory, options));
      if (!reports.back().findings.empty()) return reports;
    }
    reports_.deliver([&](const std::string& name, size_t) {
      return static_cast<const std::byte*>(plan_.workspace_named(name, frame).data);
    });
    return reports;
  }

 private:
  static CallPlan make_plan(const Kernel& kernel, const GpuCode& code) {
    std::vector<std::vector<Slot>> slots;
    for (const GpuLaunch& launch : code.launches) slots.push_back(launch.slots);
    return CallPlan(Signature(std::make_shared<const Kernel>(kernel)), slots);
  }

  std::string text_of(const CallPlan::MapSource& source) const {
    return fmt::format("{}: {}", plan_.signature().kernel().name, source.name);
  }

  void fill_maps(size_t launch, const CallArguments& arguments, const CallPlan::Frame& frame,
                 uint64_t* parameters) const {
    for (const CallPlan::MapSource& source : plan_.maps(launch)) {
      const ptx::TensorMapBytes map =
          emulated_map(text_of(source), source, plan_.tensor_of(source.tensor, arguments, frame));
      std::memcpy(parameters, map.data(), map.size());
      parameters += CallPlan::kMapWords;
    }
  }

  // The text is our own: what the emulator does not know is a defect of one of the two.
  static ptx::Program parse(const GpuCode& code) {
    try {
      return ptx::parse(code.ptx);
    } catch (const ptx::Error& error) {
      throw InternalError(fmt::format("the emulator cannot run the code: {}", error.what()));
    }
  }

  std::vector<Span> spans(const CallArguments& arguments, const CallPlan::Frame& frame) const {
    std::vector<Span> all;
    const auto& tensors = plan_.signature().tensors();
    for (size_t i = 0; i < tensors.size(); ++i)
      all.push_back(span_of(*arguments.tensors[i], tensors[i].name, tensors[i].written()));
    for (size_t i = 0; i < frame.workspaces.size(); ++i)
      all.push_back(span_of(frame.workspaces[i], fmt::format("workspace {}", i), true));
    return all;
  }

  std::string text_of(const ptx::Report& report) const {
    std::string text = fmt::format("{}: the emulator found {}:", plan_.signature().kernel().name,
                                   report.findings.size() == 1
                                       ? std::string("a mistake")
                                       : fmt::format("{} mistakes", report.findings.size()));
    for (const ptx::Finding& finding : report.findings) text += fmt::format("\n{}", finding.text());
    return text;
  }

  GpuCode code_;
  CallPlan plan_;
  ptx::Program program_;
  Reports reports_;
};

class EmulatorDevice : public HostMemoryDevice {
 public:
  explicit EmulatorDevice(std::string_view target)
      : arch_(target),
        name_(target == kDefault ? "emulator" : fmt::format("emulator:{}", target)) {}

  static constexpr std::string_view kDefault = "sm_80";

  std::string_view name() const override { return name_; }
  std::string description() const override {
    return fmt::format(
        "emulator of the PTX for {}, {} threads; finds races, deadlocks, bad "
        "accesses",
        arch_, host_threads());
  }
  std::string target() const override { return arch_; }
  std::optional<Tier> tier() const override { return Tier::Sm80; }

  std::unique_ptr<Executable> compile(const Kernel& traced) override {
    Stopwatch watch;
    auto [kernel, reports] = instrument(traced, Watches::Recorded);
    if (auto cached = cached_gpu_code(kernel, arch_)) {
      auto executable = std::make_unique<EmulatedKernel>(kernel, std::move(*cached), reports);
      count_disk_load(watch.lap_ms());
      return executable;
    }
    CompiledPtx compiled = compile_for_gpu(kernel, arch_);
    watch.lap_ms();
    auto executable = std::make_unique<EmulatedKernel>(kernel, std::move(compiled.code), reports);
    count_compilation(compiled.passes_ms, compiled.codegen_ms, watch.lap_ms());
    return executable;
  }

 private:
  std::string arch_, name_;
};

}  // namespace

ptx::Options emulator_options() {
  ptx::Options options;
  const std::string async = environment("KILN_EMULATOR_ASYNC").value_or("issue");
  if (async != "issue" && async != "latest" && async != "random")
    throw UserError(fmt::format("KILN_EMULATOR_ASYNC is '{}'", async), "issue, latest, random");
  options.async = async == "latest"   ? ptx::AsyncMode::AtLatest
                  : async == "random" ? ptx::AsyncMode::Random
                                      : ptx::AsyncMode::AtIssue;
  options.threads = host_threads();
  return options;
}

Device& emulator_device(std::string_view target) {
  if (target.empty()) target = EmulatorDevice::kDefault;
  const std::string name(gpu_target(target).name);  // UserError if there is none
  static std::mutex mutex;
  static auto& devices = *new std::map<std::string, EmulatorDevice>;  // outlive all executables
  std::lock_guard lock(mutex);
  return devices.try_emplace(name, name).first->second;
}

std::unique_ptr<Executable> emulated(const Kernel& kernel, GpuCode code) {
  return std::make_unique<EmulatedKernel>(kernel, std::move(code));
}

std::vector<ptx::Report> emulate(const Executable& executable, const Bindings& bindings,
                                 const ptx::Options& options) {
  if (const auto* kernel = dynamic_cast<const EmulatedKernel*>(&executable))
    return kernel->run(bindings, options);
  throw UserError("expected a kernel that was compiled for an emulator",
                  "compile(device(\"emulator\"), kernel)");
}

}  // namespace kiln
