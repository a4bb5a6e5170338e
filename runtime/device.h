// A device: memory, compilation and launch behind one small interface.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/interp.h"
#include "ir/kernel.h"
#include "passes/pipeline.h"

namespace kiln {

class CallPlan;
struct CallArguments;
struct GpuCode;

// A queue of work on a device. On cuda any cudaStream_t or CUstream converts to it (null: the
// legacy default stream); the other devices have none, there it is null.
using Stream = void*;

// Device memory for what a kernel's launches leave for each other, 256-byte aligned on every
// device, contents undefined. Nothing else may use it until the call's work is done. Without
// memory the call takes the device's own, on cuda one block a stream.
struct Workspace {
  void* data = nullptr;
  size_t bytes = 0;
};

// A kernel compiled for one device. Immutable; may be launched from many threads at once.
class Executable {
 public:
  virtual ~Executable() = default;
  // Runs to the end. runtime/launch.h has checked the bindings, but for where their memory is;
  // tensors are device memory, workspaces are made here.
  virtual void run(const Bindings& bindings) const = 0;
  // Checks and launches: on cuda queued on the stream and not awaited, elsewhere run to the end.
  // UserError naming the argument, what was expected and what came.
  virtual void launch(const CallArguments& arguments, Stream stream,
                      const Workspace& workspace) const = 0;
  virtual const CallPlan& plan() const = 0;
  virtual const GpuCode* gpu_code() const { return nullptr; }  // null: it is for no GPU
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string_view name() const = 0;    // "host", "interpreter", "cuda:0"
  virtual std::string description() const = 0;  // one line for people
  virtual std::string target() const = 0;       // what code depends on: CPU and features, or SM
  virtual std::optional<Tier> tier() const { return std::nullopt; }  // none: it runs no passes
  virtual void* allocate(size_t bytes) = 0;  // DeviceError naming the size if there is none
  virtual void release(void* memory) = 0;
  virtual void upload(void* device, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device, size_t bytes) = 0;
  virtual void synchronize() = 0;
  // `kernel` is as traced (canonical). From the disk cache if it can, see runtime/cache.h.
  virtual std::unique_ptr<Executable> compile(const Kernel& kernel) = 0;
  // What one run takes, the mean of `repetitions` one after the other. On a GPU the device's own
  // time from the first launch to the end of the last.
  virtual double time_ms(const Executable& executable, const Bindings& bindings, int repetitions);
};

// By name: "host", "interpreter", "emulator" (of an sm_80), "emulator:sm_90", "cuda" (the GPU that
// KILN_CUDA_DEVICE says), "cuda:1". `arch`, "sm_80", is what code for a GPU or an emulator is made
// for; empty leaves it to them. UserError listing the names, DeviceError if there is no such GPU or
// no driver. The devices live as long as the process.
Device& device(std::string_view name, std::string_view arch = {});
const std::vector<std::string_view>& device_names();
// Those that can be used here and now: "host", "interpreter", "emulator", "cuda:0", ….
std::vector<std::string> usable_devices();

}  // namespace kiln
