#include "runtime/cuda_context.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

#include "ir/error.h"
#include "runtime/cuda_error.h"
#include "runtime/environment.h"

namespace kiln::cuda {

std::string DeviceProperties::text() const {
  return fmt::format("{}, sm_{}, {} multiprocessors, {}", name, capability(), multiprocessors,
                     size_text(memory_bytes));
}

int device_count() {
  int count = 0;
  check(api().device_count(&count), "counting the devices");
  return count;
}

static CUdevice device_at(int ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count)
    throw UserError(
        fmt::format("there is no CUDA device {}: {}", ordinal,
                    count == 0 ? "this process sees none"
                               : fmt::format("expected a number from 0 to {}", count - 1)),
        "nvidia-smi shows the devices; CUDA_VISIBLE_DEVICES hides and renumbers them");
  CUdevice device = 0;
  check(api().device_get(&device, ordinal), "looking for a device");
  return device;
}

DeviceProperties device_properties(int ordinal) {
  const CUdevice device = device_at(ordinal);
  auto get = [&](DeviceAttribute attribute) {
    int value = 0;
    check(api().device_attribute(&value, attribute, device), "asking for a device's properties");
    return value;
  };
  using enum DeviceAttribute;
  DeviceProperties result;
  result.ordinal = ordinal;
  char name[256] = {};
  check(api().device_name(name, sizeof name - 1, device), "asking for a device's name");
  result.name = name;
  size_t bytes = 0;
  check(api().device_total_memory(&bytes, device), "asking for a device's memory");
  result.memory_bytes = bytes;
  result.capability_major = get(CapabilityMajor);
  result.capability_minor = get(CapabilityMinor);
  result.multiprocessors = get(MultiprocessorCount);
  result.max_threads_per_block = get(MaxThreadsPerBlock);
  result.max_threads_per_multiprocessor = get(MaxThreadsPerMultiprocessor);
  result.max_blocks_per_multiprocessor = get(MaxBlocksPerMultiprocessor);
  result.registers_per_block = get(RegistersPerBlock);
  result.registers_per_multiprocessor = get(RegistersPerMultiprocessor);
  result.shared_per_block = get(SharedPerBlock);
  result.shared_per_block_optin = get(SharedPerBlockOptin);
  result.shared_per_multiprocessor = get(SharedPerMultiprocessor);
  result.shared_reserved_per_block = get(SharedReservedPerBlock);
  result.l2_bytes = get(L2Bytes);
  result.clock_kilohertz = get(ClockKilohertz);
  result.memory_clock_kilohertz = get(MemoryClockKilohertz);
  result.memory_bus_bits = get(MemoryBusBits);
  return result;
}

int default_ordinal() {
  const auto wanted = environment_number("KILN_CUDA_DEVICE", 0, 1023);
  const int ordinal = static_cast<int>(wanted.value_or(0));
  if (wanted && ordinal >= device_count())
    throw UserError(fmt::format("KILN_CUDA_DEVICE: there is no CUDA device {}, {} visible", ordinal,
                                device_count()),
                    "kiln devices lists them; CUDA_VISIBLE_DEVICES hides and renumbers them");
  return ordinal;
}

std::optional<DeviceProperties> usable_gpu() {
  try {
    if (device_count() == 0) return std::nullopt;
    DeviceProperties properties = device_properties(default_ordinal());
    return properties.usable() ? std::optional(std::move(properties)) : std::nullopt;
  } catch (const DeviceError&) {  // no driver
    return std::nullopt;
  }
}

std::string Context::text() const {
  return fmt::format("device {} ({})", ordinal(), properties_.name);
}

void Context::synchronize() const {
  Current current(*this);
  check(api().context_synchronize(), "waiting for the device");
}

void Context::synchronize(CUstream stream) const {
  Current current(*this);
  check(api().stream_synchronize(stream), "waiting for the stream");
}

void Context::fail(Result result, const std::string& doing, const std::string& detail) const {
  std::string where = text();
  const char* kernel = last_kernel_.load(std::memory_order_relaxed);
  // Launches are asynchronous: all that is known of a fault is which kernel was launched last.
  if (is_of_kernel(result) && kernel) where += fmt::format(", last kernel launched: '{}'", kernel);
  if (!detail.empty()) where += ": " + detail;
  cuda::fail(result, doing, where);
}

static std::unique_ptr<const Context> retain(int ordinal) {
  DeviceProperties properties = device_properties(ordinal);
  if (!properties.usable())
    throw DeviceError(
        fmt::format("device {} ({}) is too old: expected compute capability {}.0 or higher, got "
                    "{}.{}",
                    ordinal, properties.name, DeviceProperties::kMinimumCapability / 10,
                    properties.capability_major, properties.capability_minor),
        "use a GPU of the Ampere generation or newer (KILN_CUDA_DEVICE=n chooses), or --device "
        "host");
  CUcontext handle = nullptr;
  check(api().primary_context_retain(&handle, device_at(ordinal)),
        "retaining the primary context of a device");
  return std::make_unique<const Context>(std::move(properties), handle);
}

const Context& context(int ordinal) {
  static std::mutex mutex;
  // Never destroyed: at exit the driver may be gone already, and it releases contexts itself.
  static auto& contexts = *new std::map<int, std::unique_ptr<const Context>>;
  std::lock_guard lock(mutex);
  auto& context = contexts[ordinal];
  if (!context) context = retain(ordinal);
  return *context;
}

}  // namespace kiln::cuda
