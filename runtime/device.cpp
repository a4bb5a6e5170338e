#include "runtime/device.h"

#include <fmt/format.h>

#include <charconv>

#include "ir/error.h"
#include "runtime/cuda_device.h"
#include "runtime/emulator_device.h"
#include "runtime/host_device.h"
#include "runtime/interpreter_device.h"
#include "runtime/stats.h"

namespace kiln {

double Device::time_ms(const Executable& executable, const Bindings& bindings, int repetitions) {
  synchronize();
  Stopwatch watch;
  for (int i = 0; i < repetitions; ++i) executable.run(bindings);
  synchronize();
  return watch.lap_ms() / repetitions;
}

const std::vector<std::string_view>& device_names() {
  static const std::vector<std::string_view> names = {"host", "interpreter", "emulator", "cuda"};
  return names;
}

static void refuse_arch(std::string_view name, std::string_view arch) {
  if (arch.empty()) return;
  throw UserError(fmt::format("device {}: an architecture ({}) is for GPUs", name, arch),
                  "cuda, or emulator if there is no GPU");
}

Device& device(std::string_view name, std::string_view arch) {
  constexpr std::string_view kNumbered = "cuda:", kEmulated = "emulator:";
  if (name == "host" || name == "interpreter") {
    refuse_arch(name, arch);
    return name == "host" ? host_device() : interpreter_device();
  }
  if (name == "emulator") return emulator_device(arch);
  if (name.starts_with(kEmulated)) {
    const std::string_view own = name.substr(kEmulated.size());
    if (!arch.empty() && arch != own)
      throw UserError(fmt::format("device {}: the architecture is to be {} as well", name, arch));
    return emulator_device(own);
  }
  if (name == "cuda") return cuda_device(cuda::default_ordinal(), arch);
  if (name.starts_with(kNumbered)) {
    int ordinal = -1;
    const char* end = name.data() + name.size();
    auto [rest, error] = std::from_chars(name.data() + kNumbered.size(), end, ordinal);
    if (error == std::errc() && rest == end) return cuda_device(ordinal, arch);
  }
  throw UserError(fmt::format("there is no device '{}'", name),
                  fmt::format("one of {}, cuda:1, …", fmt::join(device_names(), ", ")));
}

std::vector<std::string> usable_devices() {
  std::vector<std::string> names = {"host", "interpreter", "emulator"};
  try {
    for (int i = 0; i < cuda::device_count(); ++i)
      if (cuda::device_properties(i).usable()) names.push_back(fmt::format("cuda:{}", i));
  } catch (const DeviceError&) {
  }
  return names;
}

}  // namespace kiln
