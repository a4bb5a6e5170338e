// Memory of a GPU: taking it, copying, and telling whose a pointer is.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>

#include "runtime/cuda_context.h"

namespace kiln::cuda {

// At least 256-byte aligned, never null. DeviceError naming what was asked for, free and there.
void* allocate(const Context& context, size_t bytes);
void release(const Context& context, void* memory);  // null is allowed; waits for the device

// Ordered after the stream's work and done when they return.
void upload(const Context& context, void* to, const void* from, size_t bytes,
            CUstream stream = nullptr);
void download(const Context& context, void* to, const void* from, size_t bytes,
              CUstream stream = nullptr);
// On the device, queued on the stream; they do not wait.
void copy(const Context& context, void* to, const void* from, size_t bytes, CUstream stream);
void fill(const Context& context, void* to, std::byte value, size_t bytes, CUstream stream);

struct MemoryInfo {
  size_t free = 0, total = 0;  // bytes, of the whole device
};
MemoryInfo memory_info(const Context& context);

// What CUDA knows of an address: nothing (ordinary host memory), host memory that it pinned, memory
// of device `ordinal`, or managed memory, which any device may use.
struct PointerInfo {
  enum class Kind { Host, Pinned, Device, Managed };
  Kind kind = Kind::Host;
  int ordinal = -1;  // of Device
};
PointerInfo pointer_info(const Context& context, const void* pointer);

// Checks that tensors are where kernels can reach them, fast enough for every launch: a page that
// was found to be the device's is remembered. Any thread may ask.
class PointerCheck {
 public:
  explicit PointerCheck(const Context& context) : context_(context) {}
  PointerCheck(const PointerCheck&) = delete;

  // After memory was given back: its pages may become someone else's.
  void forget() {
    for (auto& page : pages_) page.store(0, std::memory_order_relaxed);
  }
  // UserError naming `what` if the pointer is not this device's memory.
  void operator()(const void* pointer, std::string_view what) {
    if (!knows(pointer)) [[unlikely]]
      look_up(pointer, what);
  }
  // Its page was found to be this device's.
  bool knows(const void* pointer) const {
    const uintptr_t page = page_of(pointer);
    return pages_[page % kEntries].load(std::memory_order_relaxed) == page;
  }

 private:
  static uintptr_t page_of(const void* pointer) {  // never 0, which marks a free entry
    return (reinterpret_cast<uintptr_t>(pointer) >> kPageBits) + 1;
  }
  void look_up(const void* pointer, std::string_view what);

  // Device memory is mapped in pages of 2 MiB, so no page belongs to two. A page that others
  // give back and that something else gets is trusted wrongly; then the kernel's fault tells.
  static constexpr int kPageBits = 21;
  static constexpr size_t kEntries = 512;
  const Context& context_;
  std::array<std::atomic<uintptr_t>, kEntries> pages_ = {};
};

}  // namespace kiln::cuda
