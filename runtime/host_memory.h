// Device memory of the devices that compute on the CPU: host memory.
#pragma once

#include <cstring>

#include "runtime/array.h"
#include "runtime/device.h"

namespace kiln {

class HostMemoryDevice : public Device {
 public:
  void* allocate(size_t bytes) override { return allocate_aligned(bytes); }
  void release(void* memory) override { release_aligned(memory); }
  void upload(void* device, const void* host, size_t bytes) override { copy(device, host, bytes); }
  void download(void* host, const void* device, size_t bytes) override {
    copy(host, device, bytes);
  }
  void synchronize() override {}

 private:
  static void copy(void* to, const void* from, size_t bytes) {
    if (bytes > 0) std::memmove(to, from, bytes);
  }
};

}  // namespace kiln
