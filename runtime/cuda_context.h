// NVIDIA GPUs: what they are, and the context in which this process uses one.
#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "runtime/cuda_api.h"

namespace kiln::cuda {

struct DeviceProperties {
  int ordinal = 0;
  std::string name;  // "NVIDIA H200"
  int capability_major = 0, capability_minor = 0;
  int multiprocessors = 0;
  int max_threads_per_block = 0, max_threads_per_multiprocessor = 0;
  int max_blocks_per_multiprocessor = 0;
  int registers_per_block = 0, registers_per_multiprocessor = 0;  // 32-bit
  // Bytes. A block has `shared_per_block`, or if it opts in up to `shared_per_block_optin`; each
  // block costs its multiprocessor `shared_reserved_per_block` more.
  int shared_per_block = 0, shared_per_block_optin = 0;
  int shared_per_multiprocessor = 0, shared_reserved_per_block = 0;
  int l2_bytes = 0;
  uint64_t memory_bytes = 0;
  int clock_kilohertz = 0, memory_clock_kilohertz = 0, memory_bus_bits = 0;

  int capability() const { return 10 * capability_major + capability_minor; }  // 90 for sm_90
  bool usable() const { return capability() >= kMinimumCapability; }
  std::string text() const;  // "NVIDIA H200, sm_90, 132 multiprocessors, 139.81 GiB"

  static constexpr int kMinimumCapability = 80;
};

int device_count();  // 0 is possible: CUDA_VISIBLE_DEVICES. DeviceError if there is no driver
DeviceProperties device_properties(int ordinal);  // UserError if there is no such device
int default_ordinal();  // $KILN_CUDA_DEVICE, else 0; UserError if there is no such device
// The device of default_ordinal, if there is a driver and Kiln can use the device.
std::optional<DeviceProperties> usable_gpu();

// The primary context of a device: the one that the CUDA run time, and so PyTorch, uses too. It is
// retained for the life of the process.
class Context {
 public:
  Context(DeviceProperties properties, CUcontext handle)
      : properties_(std::move(properties)), handle_(handle) {}
  Context(const Context&) = delete;

  const DeviceProperties& properties() const { return properties_; }
  int ordinal() const { return properties_.ordinal; }
  CUcontext handle() const { return handle_; }
  std::string text() const;  // "device 0 (NVIDIA H200)"

  void synchronize() const;                 // waits for everything on the device
  void synchronize(CUstream stream) const;  // waits for the stream

  // As cuda::check, and names the device and, if a kernel failed, the one launched last.
  void check(Result result, const char* doing) const {
    if (result != Result::Success) [[unlikely]]
      fail(result, doing);
  }
  [[noreturn]] void fail(Result result, const std::string& doing,
                         const std::string& detail = "") const;
  // For launches; the name must live as long as the process (ir/loc.h: intern).
  void note_kernel(const char* name) const { last_kernel_.store(name, std::memory_order_relaxed); }

 private:
  DeviceProperties properties_;
  CUcontext handle_;
  mutable std::atomic<const char*> last_kernel_ = nullptr;
};

// The device's context, retained when first asked for; any thread may ask. DeviceError if its
// capability is below 8.0 or the driver refuses, UserError if there is no such device.
const Context& context(int ordinal);

// Makes a context current in this thread and puts back what was, so that other users of CUDA in
// the process notice nothing. Costs one query of the driver if the context is current already.
class Current {
 public:
  explicit Current(const Context& context) {
    const Api& cuda = api();
    CUcontext now = nullptr;
    context.check(cuda.context_get_current(&now), "asking for the current context");
    if (now == context.handle()) return;
    context.check(cuda.context_push(context.handle()), "making the context current");
    pop_ = cuda.context_pop;
  }
  ~Current() {
    CUcontext popped;
    if (pop_) pop_(&popped);
  }
  Current(const Current&) = delete;

 private:
  Result (*pop_)(CUcontext*) = nullptr;
};

}  // namespace kiln::cuda
