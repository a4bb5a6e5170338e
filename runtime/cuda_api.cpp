#include "runtime/cuda_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "ir/error.h"
#include "runtime/cuda_error.h"
#include "runtime/environment.h"

namespace kiln::cuda {
namespace {

constexpr const char* kDefaultLibrary = "libcuda.so.1";

// Names with a version are ABI: dlsym finds what cuGetProcAddress would give, with one step less.
template <class Function>
void find(void* library, const std::string& path, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
  if (!function)
    throw DeviceError(
        fmt::format("{} has no {}: it is not the CUDA driver's library (of CUDA {} or newer)", path,
                    symbol, version_text(kMinimumDriver)),
        "point KILN_LIBCUDA at the driver's libcuda.so.1, or unset it");
}

void* open(const std::string& path) {
  // Local: the process may have its own CUDA, whose symbols must not meet ours.
  if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  const char* why = dlerror();
  throw DeviceError(
      fmt::format("no CUDA driver: {} cannot be loaded ({})", path, why ? why : "unknown reason"),
      fmt::format("install an NVIDIA driver for CUDA {} or newer (nvidia-smi shows it); in a "
                  "container, start it with the GPUs made visible; KILN_LIBCUDA=path names a "
                  "library elsewhere",
                  version_text(kMinimumDriver)));
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Api load_api(const std::string& path) {
  void* library = open(path);
  Result (*driver_version)(int*);
  find(library, path, "cuDriverGetVersion", driver_version);
  Api result{};
  result.library = path;
  if (Result answer = driver_version(&result.driver_version); answer != Result::Success)
    fail(answer, "asking for the driver's version");
  if (result.driver_version < kMinimumDriver)
    throw DeviceError(
        fmt::format("the CUDA driver is too old: expected CUDA {} or newer, {} is {}",
                    version_text(kMinimumDriver), path, version_text(result.driver_version)),
        "update the NVIDIA driver to release 525 or newer");
#define KILN_CUDA(member, symbol, ...) find(library, path, symbol, result.member);
#include "runtime/cuda_api.def"
#undef KILN_CUDA
  describe_with(result.error_name, result.error_string);
  // Only now: the driver looks for devices and may refuse for reasons of the machine.
  if (Result answer = result.init(0); answer != Result::Success)
    fail(answer,
         fmt::format("initialising the driver (CUDA {})", version_text(result.driver_version)));
  return result;
}

const Api& api() {
  static const Api loaded = load_api(environment("KILN_LIBCUDA").value_or(kDefaultLibrary));
  return loaded;
}

}  // namespace kiln::cuda
