#include "runtime/host_device.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "codegen/host.h"
#include "ir/error.h"
#include "passes/reports.h"
#include "runtime/host_code.h"
#include "runtime/host_memory.h"
#include "runtime/stats.h"
#include "runtime/thread_pool.h"

namespace kiln {
namespace {

// The workspaces of one run.
class Workspaces {
 public:
  explicit Workspaces(size_t count) { owned_.reserve(count); }
  ~Workspaces() {
    for (void* memory : owned_) release_aligned(memory);
  }
  Workspaces(const Workspaces&) = delete;
  Memory make(DType dtype, Shape shape) {
    owned_.push_back(allocate_aligned(bytes_of(dtype, shape)));
    return Memory::contiguous(owned_.back(), dtype, std::move(shape));
  }

 private:
  std::vector<void*> owned_;
};

using Tensors = std::map<std::string, Memory, std::less<>>;

uint64_t bits_of(const Scalar& value) {
  uint64_t bits = 0;
  store_element(value, &bits);
  return bits;
}

uint64_t value_of(const Slot& slot, const Bindings& bindings, const Tensors& workspaces) {
  auto tensor = [&]() -> const Memory& {
    auto it = bindings.tensors.find(slot.name);
    return it != bindings.tensors.end() ? it->second : workspaces.at(slot.name);
  };
  switch (slot.kind) {
    case Slot::Kind::Pointer: return reinterpret_cast<uint64_t>(tensor().data);
    case Slot::Kind::Stride:
      return static_cast<uint64_t>(tensor().strides.at(static_cast<size_t>(slot.axis)));
    case Slot::Kind::Dim: return static_cast<uint64_t>(bindings.dims.at(slot.name));
    case Slot::Kind::Param: return bits_of(bindings.params.at(slot.name));
    case Slot::Kind::Map: break;  // host code has none
  }
  return 0;
}

class HostKernel : public Executable {
 public:
  HostKernel(const Instrumented& made, const HostObject& object)
      : kernel_(made.kernel), reports_(made.reports), launches_(object.launches), code_(object) {
    for (OpId id : kernel_.region(kernel_.body).ops) {
      const Op& op = kernel_.op(id);
      if (op.code == OpCode::Launch) grids_.push_back(id);
      if (op.code == OpCode::Tensor && op.word("role") == "workspace" && is_used(op))
        workspaces_.push_back(id);
    }
    if (grids_.size() != launches_.size())
      throw InternalError(fmt::format("{}: {} launches were compiled to {}", kernel_.name,
                                      grids_.size(), launches_.size()));
  }

  void run(const Bindings& bindings) const override {
    TopLevel top(kernel_, bindings.dims, bindings.params);
    Workspaces owner(workspaces_.size());
    Tensors workspaces;
    for (OpId id : workspaces_) {
      const Op& op = kernel_.op(id);
      workspaces.emplace(op.word("name"), owner.make(kernel_.type(op.result).dtype, top.shape(op)));
    }
    for (size_t i = 0; i < launches_.size(); ++i) {
      std::vector<uint64_t> slots;
      for (const Slot& slot : launches_[i].slots)
        slots.push_back(value_of(slot, bindings, workspaces));
      const std::vector<int64_t> grid = top.grid(kernel_.op(grids_[i]));
      slots.push_back(static_cast<uint64_t>(grid[0] * grid[1] * grid[2]));
      run_grid(i, grid, slots);
    }
    reports_.deliver([&](const std::string& name, size_t) {
      return static_cast<const std::byte*>(workspaces.find(name)->second.data);
    });
  }

 private:
  bool is_used(const Op& workspace) const {
    for (const HostLaunch& launch : launches_)
      for (const Slot& slot : launch.slots)
        if (slot.name == workspace.word("name")) return true;
    return false;
  }

  void run_grid(size_t launch, const std::vector<int64_t>& grid,
                const std::vector<uint64_t>& slots) const {
    int64_t nx = grid[0], ny = grid[1], nz = grid[2];
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

  Kernel kernel_;  // for what the top level computes at launch
  Reports reports_;
  std::vector<HostLaunch> launches_;
  std::vector<OpId> grids_, workspaces_;
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
