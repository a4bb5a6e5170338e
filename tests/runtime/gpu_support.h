// What the tests of the CUDA device share.
#pragma once

#include "ir/memory.h"
#include "runtime/device.h"
#include "tests/runtime/cuda_support.h"
#include "tests/runtime/support.h"

namespace kiln::test {

// A tensor in a device's memory.
class OnDevice {
 public:
  OnDevice(Device& device, DType dtype, Shape shape);
  OnDevice(Device& device, const std::vector<float>& values);
  ~OnDevice() { device_.release(memory_.data); }
  OnDevice(const OnDevice&) = delete;

  const Memory& memory() const { return memory_; }
  Memory at(int64_t bytes) const;  // the same, that many bytes further on
  std::vector<float> values() const;

 private:
  Device& device_;
  Memory memory_;
};

std::vector<float> iota(int64_t count);  // 0, 1, …

// The scale kernel through compile and run, by name; is the result right?
bool scales(Device& device, int64_t n);

// A program that does as ptxas: `version` as its own, and cubins as the fake driver takes them.
std::filesystem::path write_fake_ptxas(const std::filesystem::path& directory,
                                       const std::string& version = "V12.4.131");

}  // namespace kiln::test
