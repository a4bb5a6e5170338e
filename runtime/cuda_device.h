// NVIDIA GPUs as devices.
#pragma once

#include <string>
#include <string_view>

#include "runtime/cuda_executable.h"
#include "runtime/device.h"

namespace kiln {

// One GPU, and the architecture that code is made for. Compiles to PTX (runtime/gpu_code.h), which
// the driver compiles further; with KILN_PTXAS a ptxas of the machine does.
class CudaDevice : public Device {
 public:
  // `arch` is a name of passes/gpu_target.h that the GPU can run; UserError if not.
  CudaDevice(const cuda::Context& context, std::string_view arch);

  std::string_view name() const override { return name_; }
  std::string description() const override;
  std::string target() const override { return target_; }
  std::optional<Tier> tier() const override { return Tier::Sm80; }
  void* allocate(size_t bytes) override;
  void release(void* memory) override;
  void upload(void* device, const void* host, size_t bytes) override;
  void download(void* host, const void* device, size_t bytes) override;
  void synchronize() override;
  std::unique_ptr<Executable> compile(const Kernel& kernel) override;
  double time_ms(const Executable& executable, const Bindings& bindings, int repetitions) override;

  const cuda::Context& context() const { return shared_.context; }
  // The code on the device. DeviceError if the driver refuses it.
  std::unique_ptr<CudaExecutable> load(const Kernel& kernel, GpuCode code,
                                       const Reports& reports = {});

 private:
  std::unique_ptr<CudaExecutable> load_cached(const Kernel& kernel,
                                              const Reports& reports);  // null if it cannot

  std::string name_, target_;
  CudaShared& shared_;
};

// The GPU of that number, by default the one that KILN_CUDA_DEVICE says; code for `arch`, by
// default what KILN_CUDA_ARCH says, else the best for the GPU. UserError and DeviceError as
// device().
CudaDevice& cuda_device();
CudaDevice& cuda_device(int ordinal, std::string_view arch = "");

// Several lines for people: threads, registers, shared memory, caches, clocks of a GPU.
std::string cuda_limits(const cuda::DeviceProperties& device);

}  // namespace kiln
