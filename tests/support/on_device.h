// Running on any device with tensors that are in host memory: a GPU gets copies of them.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ir/error.h"
#include "runtime/device.h"

namespace kiln::testing {

// Is the device's memory ordinary memory of this process?
inline bool uses_host_memory(const Device& device) {
  return !device.name().starts_with("cuda");
}

// Copies of the tensors in a device's memory, with everything between their elements and a guard on
// each side, at addresses as (mis)aligned as the originals.
class OnDevice {
 public:
  OnDevice(Device& device, const Bindings& host) : device_(device), bindings_(host) {
    for (auto& [name, memory] : bindings_.tensors) {
      if (count(memory.shape) == 0) continue;
      Copy& copy = copies_[name];
      const auto bytes = static_cast<int64_t>(size_of(memory.dtype));
      int64_t low = 0, high = bytes;
      for (size_t axis = 0; axis < memory.shape.size(); ++axis) {
        const int64_t reach = (memory.shape[axis] - 1) * memory.strides[axis] * bytes;
        (reach < 0 ? low : high) += reach;
      }
      copy.host = static_cast<std::byte*>(memory.data) + low;
      copy.bytes = static_cast<size_t>(high - low);
      copy.start = kGuard + reinterpret_cast<uintptr_t>(copy.host) % 256;
      copy.buffer.assign(copy.start + copy.bytes + kGuard, kFill);
      std::memcpy(&copy.buffer[copy.start], copy.host, copy.bytes);
      copy.device = device.allocate(copy.buffer.size());
      device.upload(copy.device, copy.buffer.data(), copy.buffer.size());
      memory.data = static_cast<std::byte*>(copy.device) + copy.start - low;
    }
  }
  ~OnDevice() {
    for (auto& entry : copies_) device_.release(entry.second.device);
  }
  OnDevice(const OnDevice&) = delete;

  const Bindings& bindings() const { return bindings_; }

  // Brings everything back. InternalError if a guard was written.
  void fetch() {
    device_.synchronize();
    for (auto& [name, copy] : copies_) {
      device_.download(copy.buffer.data(), copy.device, copy.buffer.size());
      for (size_t i = 0; i < copy.buffer.size(); ++i)
        if ((i < copy.start || i >= copy.start + copy.bytes) && copy.buffer[i] != kFill)
          throw InternalError("'" + name + "': a guard beyond its ends was written");
      std::memcpy(copy.host, &copy.buffer[copy.start], copy.bytes);
    }
  }

 private:
  static constexpr size_t kGuard = 512;
  static constexpr std::byte kFill{0xA5};

  struct Copy {
    std::byte* host = nullptr;
    size_t bytes = 0, start = 0;
    std::vector<std::byte> buffer;
    void* device = nullptr;
  };

  Device& device_;
  Bindings bindings_;
  std::map<std::string, Copy> copies_;
};

inline void run_on(Device& device, const Executable& executable, const Bindings& bindings) {
  if (uses_host_memory(device)) return executable.run(bindings);
  OnDevice there(device, bindings);
  try {
    executable.run(there.bindings());
  } catch (const UserError&) {  // of a device_assert: the results are there all the same
    there.fetch();
    throw;
  }
  there.fetch();
}

}  // namespace kiln::testing
