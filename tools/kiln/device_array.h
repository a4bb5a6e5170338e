// An array's copy in a device's memory.
#pragma once

#include "runtime/array.h"
#include "runtime/device.h"

namespace kiln::cli {

class DeviceArray {
 public:
  // `host` is contiguous.
  DeviceArray(Device& device, const Memory& host) : device_(&device), memory_(host) {
    size_t bytes = bytes_of(host.dtype, host.shape);
    memory_.data = device.allocate(bytes);
    device.upload(memory_.data, host.data, bytes);
  }
  ~DeviceArray() {
    if (memory_.data) device_->release(memory_.data);
  }
  DeviceArray(DeviceArray&& other) noexcept : device_(other.device_), memory_(other.memory_) {
    other.memory_.data = nullptr;
  }
  DeviceArray& operator=(DeviceArray&&) = delete;

  const Memory& memory() const { return memory_; }
  void download(Array& array) const {
    device_->synchronize();
    device_->download(array.data(), memory_.data, array.bytes());
  }

 private:
  Device* device_;
  Memory memory_;
};

}  // namespace kiln::cli
