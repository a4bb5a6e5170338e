#include "runtime/cuda_device.h"

#include <fmt/format.h>

#include <map>
#include <mutex>
#include <utility>

#include "ir/error.h"
#include "ir/log.h"
#include "passes/gpu_target.h"
#include "runtime/cache.h"
#include "runtime/cubins.h"
#include "runtime/cuda_error.h"
#include "runtime/cuda_event.h"
#include "runtime/environment.h"
#include "runtime/external_ptxas.h"
#include "runtime/gpu_code.h"

namespace kiln {
namespace {

std::string default_arch(const cuda::DeviceProperties& gpu) {
  if (auto wanted = environment("KILN_CUDA_ARCH")) return *wanted;
  return std::string(gpu_target_for(gpu.capability()).name);
}

void check_arch(const cuda::Context& context, const GpuTarget& target) {
  const int capability = context.properties().capability();
  if (runs_on(target, capability)) return;
  throw UserError(fmt::format("{} is sm_{}: it cannot run code for {}", context.text(), capability,
                              target.name),
                  fmt::format("{} or older", gpu_target_for(capability).name));
}

std::string arch_of(const cuda::Context& context, const Kernel& kernel, const std::string& own) {
  std::string arch = code_arch(kernel, own);
  if (arch != own) check_arch(context, gpu_target(arch));
  return arch;
}

using Loaded = std::shared_ptr<const cuda::Module>;

// Null if there is no cubin, or the driver takes it for none, whatever its checksum says.
Loaded load_cubin(const cuda::Context& context, const std::optional<std::string>& cubin,
                  const std::string& name) {
  if (!cubin) return nullptr;
  try {
    return cuda::load_module(context, *cubin, name);
  } catch (const DeviceError& error) {
    log_message(LogLevel::Info, fmt::format("a cubin is made again: {}", error.message()));
    return nullptr;
  }
}

Loaded load_code(const cuda::Context& context, const GpuCode& code, const GpuTarget& target,
                 const std::string& name) {
  const auto ptxas = external_ptxas();
  const Cubins cubins(code.ptx, cubin_arch(target, context.properties().capability()));
  const CacheLayers cache = disk_cache();
  if (Loaded module = load_cubin(context, cubins.load(ptxas, cache), name)) return module;
  if (!ptxas) return cuda::load_module(context, code.ptx, name);
  try {
    return cuda::load_module(context, cubins.make(*ptxas, name, cache), name);
  } catch (const DeviceError& error) {
    if (ptxas->chosen) throw;
    log_message(LogLevel::Warning,
                fmt::format("the driver compiles instead of ptxas: {}", error.message()));
    return cuda::load_module(context, code.ptx, name);
  }
}

void check_complaint(const CudaExecutable& executable) {
  note_complaint(executable.complaint());
  if (executable.complaint().empty()) return;
  if (environment_number("KILN_STRICT", 0, 1).value_or(0) == 1)
    throw DeviceError(executable.complaint(), "unset KILN_STRICT to run it all the same");
  log_message(LogLevel::Warning, executable.complaint());
}

}  // namespace

CudaDevice::CudaDevice(const cuda::Context& context, std::string_view arch)
    : name_(fmt::format("cuda:{}", context.ordinal())),
      target_(arch),
      shared_(cuda_shared(context)) {
  check_arch(context, gpu_target(arch));
}

std::string CudaDevice::description() const {
  return fmt::format("{}, driver CUDA {}, code for {}", context().properties().text(),
                     cuda::version_text(cuda::api().driver_version), target_);
}

void* CudaDevice::allocate(size_t bytes) {
  return cuda::allocate(context(), bytes);
}
void CudaDevice::release(void* memory) {
  cuda::release(context(), memory);
  shared_.pointer_check.forget();
}
void CudaDevice::upload(void* device, const void* host, size_t bytes) {
  cuda::upload(context(), device, host, bytes);
}
void CudaDevice::download(void* host, const void* device, size_t bytes) {
  cuda::download(context(), host, device, bytes);
}
void CudaDevice::synchronize() {
  context().synchronize();
}

std::unique_ptr<CudaExecutable> CudaDevice::load(const Kernel& kernel, GpuCode code,
                                                 const Reports& reports) {
  const GpuTarget& target = gpu_target(arch_of(context(), kernel, target_));
  auto module = load_code(context(), code, target, kernel.name);
  return std::make_unique<CudaExecutable>(shared_, kernel, std::move(code), std::move(module),
                                          reports);
}

std::unique_ptr<CudaExecutable> CudaDevice::load_cached(const Kernel& kernel,
                                                        const Reports& reports) {
  auto code = cached_gpu_code(kernel, arch_of(context(), kernel, target_));
  if (!code) return nullptr;
  try {
    return load(kernel, std::move(*code), reports);
  } catch (const Error&) {  // not what was stored; if it is not that, compiling will meet it again
    return nullptr;
  }
}

std::unique_ptr<Executable> CudaDevice::compile(const Kernel& traced) {
  Stopwatch watch;
  const auto [kernel, reports] = instrument(traced, Watches::Recorded);
  std::unique_ptr<CudaExecutable> executable = load_cached(kernel, reports);
  if (executable) {
    count_disk_load(watch.lap_ms());
  } else {
    CompiledPtx compiled = compile_for_gpu(kernel, arch_of(context(), kernel, target_));
    watch.lap_ms();
    executable = load(kernel, std::move(compiled.code), reports);
    count_compilation(compiled.passes_ms, compiled.codegen_ms, watch.lap_ms());
  }
  check_complaint(*executable);
  return executable;
}

double CudaDevice::time_ms(const Executable& executable, const Bindings& bindings,
                           int repetitions) {
  const CudaExecutable& kernel = cuda_executable(executable);
  const CallPlan::Positional arguments = kernel.plan().positional(bindings);
  cuda::Event start(context()), stop(context());
  start.record(nullptr);
  for (int i = 0; i < repetitions; ++i) kernel.launch(arguments.view(), nullptr);
  stop.record(nullptr);
  return double{cuda::elapsed_ms(start, stop)} / repetitions;
}

CudaDevice& cuda_device() {
  return cuda_device(cuda::default_ordinal());
}

CudaDevice& cuda_device(int ordinal, std::string_view arch) {
  const cuda::Context& context = cuda::context(ordinal);
  const std::string wanted = arch.empty() ? default_arch(context.properties()) : std::string(arch);
  static std::mutex mutex;
  // Never destroyed: executables may outlive anything.
  static auto& devices = *new std::map<std::pair<int, std::string>, std::unique_ptr<CudaDevice>>;
  std::lock_guard lock(mutex);
  auto& device = devices[{ordinal, wanted}];
  if (!device) device = std::make_unique<CudaDevice>(context, wanted);
  return *device;
}

std::string cuda_limits(const cuda::DeviceProperties& gpu) {
  const double bytes_per_second =
      2e3 * gpu.memory_clock_kilohertz * (gpu.memory_bus_bits / 8.0);  // double data rate
  return fmt::format(
      "multiprocessors  {}, up to {} MHz\n"
      "threads          {} a block; {} and {} blocks a multiprocessor\n"
      "registers        {} a block; {} a multiprocessor\n"
      "shared memory    {} a block, {} on request; {} a multiprocessor, {} of each block reserved\n"
      "memory           {}, {:.0f} GB/s; L2 cache {}\n",
      gpu.multiprocessors, gpu.clock_kilohertz / 1000, gpu.max_threads_per_block,
      gpu.max_threads_per_multiprocessor, gpu.max_blocks_per_multiprocessor,
      gpu.registers_per_block, gpu.registers_per_multiprocessor,
      cuda::size_text(static_cast<uint64_t>(gpu.shared_per_block)),
      cuda::size_text(static_cast<uint64_t>(gpu.shared_per_block_optin)),
      cuda::size_text(static_cast<uint64_t>(gpu.shared_per_multiprocessor)),
      cuda::size_text(static_cast<uint64_t>(gpu.shared_reserved_per_block)),
      cuda::size_text(gpu.memory_bytes), bytes_per_second / 1e9,
      cuda::size_text(static_cast<uint64_t>(gpu.l2_bytes)));
}

}  // namespace kiln
