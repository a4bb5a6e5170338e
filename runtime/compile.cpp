#include "runtime/compile.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "ir/canon.h"
#include "ir/log.h"
#include "runtime/lowering.h"
#include "runtime/memory_cache.h"

namespace kiln {
namespace {

using Code = std::shared_ptr<const Executable>;

// Never destroyed: at exit other threads may still run compiled code.
MemoryCache<Code>& compiled_code() {
  static auto& cache = *new MemoryCache<Code>(kMostCompiled);
  return cache;
}

}  // namespace

Function compile(Device& device, const Kernel& kernel) {
  Stopwatch watch;
  auto signature = std::make_shared<Signature>(std::make_shared<Kernel>(compilable(kernel)));
  std::string key =
      fmt::format("{} {} {}", device.name(), device.target(), hash(signature->kernel()));
  double canonical_ms = watch.lap_ms();
  auto [code, hit] = compiled_code().get(key, [&]() -> Code {
    note_canonical(canonical_ms);
    Code made = device.compile(signature->kernel());
    log_message(LogLevel::Info,
                fmt::format("{} is ready on {} ({}) after {:.1f} ms", signature->kernel().name,
                            device.name(), device.target(), canonical_ms + watch.lap_ms()));
    return made;
  });
  if (hit) count_memory_hit();
  return {device, std::move(signature), std::move(code)};
}

void forget_compiled() {
  compiled_code().clear();
}

void run(Device& device, const Kernel& kernel, const Arguments& arguments) {
  compile(device, kernel)(arguments);
}

}  // namespace kiln
