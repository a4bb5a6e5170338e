#include "runtime/host_device.h"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <utility>

#include "codegen/host.h"
#include "ir/error.h"
#include "passes/reports.h"
#include "runtime/call_plan.h"
#include "runtime/host_code.h"
#include "runtime/host_memory.h"
#include "runtime/stats.h"
#include "runtime/thread_pool.h"

namespace kiln {
namespace {

CallPlan make_plan(const Kernel& kernel, const HostObject& object) {
  std::vector<std::vector<Slot>> slots;
  for (const HostLaunch& launch : object.launches) slots.push_back(launch.slots);
  return CallPlan(Signature(std::make_shared<const Kernel>(kernel)), slots, CallPlan::kAnyGrid);
}

class HostKernel : public Executable {
 public:
  HostKernel(const Instrumented& made, const HostObject& object)
      : plan_(make_plan(made.kernel, object)),
        reports_(made.reports),
        launches_(object.launches),
        code_(object) {}

  void run(const Bindings& bindings) const override {
    launch(plan_.positional(bindings).view(), nullptr, {});
  }

  void launch(const CallArguments& arguments, Stream stream,
              const Workspace& workspace) const override {
    CallPlan::Frame& call = CallPlan::thread_frame();
    plan_.enter(arguments, call);
    plan_.check_no_stream(stream, "host");
    const uint64_t bytes = plan_.workspace_bytes(call);
    plan_.check_workspace(workspace, bytes);
    std::optional<Scratch> own;
    if (bytes > 0) {
      if (!workspace.data) own.emplace(bytes);
      plan_.place_workspaces(own ? own->data() : workspace.data, call);
    }
    for (size_t i = 0; i < launches_.size(); ++i) {
      const std::array<int64_t, 3> grid = plan_.grid(i, call);
      std::vector<uint64_t> slots(launches_[i].slots.size() + 1);
      plan_.fill_slots(i, arguments, call, slots.data());
      slots.back() = static_cast<uint64_t>(grid[0] * grid[1] * grid[2]);
      run_grid(i, grid, slots);
    }
    reports_.deliver([&](const std::string& name, size_t) {
      return static_cast<const std::byte*>(plan_.workspace_named(name, call).data);
    });
  }
  const CallPlan& plan() const override { return plan_; }

 private:
  void run_grid(size_t launch, const std::array<int64_t, 3>& grid,
                const std::vector<uint64_t>& slots) const {
    const int64_t nx = grid[0], ny = grid[1], nz = grid[2];
    if (nx <= 0 || ny <= 0 || nz <= 0) return;
    const HostLaunch& made = launches_[launch];
    parallel_for(nx * ny * nz, [&](int64_t begin, int64_t end) {
      Scratch scratch(made.scratch_bytes);
      int64_t x = begin % nx, y = begin / nx % ny, z = begin / nx / ny;
      for (int64_t block = begin; block < end; ++block) {
        run_block(code_, launch, made, slots.data(), {x, y, z}, scratch.data());
        if (++x < nx) continue;
        x = 0;
        if (++y < ny) continue;
        y = 0;
        ++z;
      }
    });
  }

  CallPlan plan_;
  Reports reports_;
  std::vector<HostLaunch> launches_;
  HostCode code_;
};

// Null if the cache has nothing that can be used after all: it is compiled again then.
std::unique_ptr<Executable> load_cached(const Instrumented& made) {
  auto object = cached_host_code(made.kernel);
  if (!object) return nullptr;
  try {
    return std::make_unique<HostKernel>(made, *object);
  } catch (const Error&) {
    return nullptr;
  }
}

class HostDevice : public HostMemoryDevice {
 public:
  std::string_view name() const override { return "host"; }
  std::string description() const override {
    std::string cpu = host_cpu().substr(0, host_cpu().find_first_of(" ,"));
    return fmt::format("CPU {}, {} threads", cpu, host_threads());
  }
  std::string target() const override { return host_target(); }
  std::optional<Tier> tier() const override { return Tier::Host; }

  std::unique_ptr<Executable> compile(const Kernel& traced) override {
    Stopwatch watch;
    const Instrumented made = instrument(traced, Watches::Direct);
    if (auto executable = load_cached(made)) {
      count_disk_load(watch.lap_ms());
      return executable;
    }
    const CompiledHost compiled = compile_for_host(made.kernel);
    watch.lap_ms();
    auto executable = std::make_unique<HostKernel>(made, compiled.object);
    count_compilation(compiled.passes_ms, compiled.codegen_ms, watch.lap_ms());
    return executable;
  }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace kiln
