// From a kernel to machine code for this CPU, with the disk cache.
#pragma once

#include <optional>
#include <string>

#include "codegen/host.h"
#include "ir/kernel.h"
#include "runtime/cache.h"

namespace kiln {

std::string host_target();  // what code depends on: CPU and features

// The name of a kernel's entry in the disk cache: equal exactly if the code would be.
std::string host_cache_key(const Kernel& kernel);

struct CompiledHost {
  HostObject object;
  double passes_ms = 0, codegen_ms = 0;
  bool stored = false;  // in the cache
};
// `kernel` is as traced (canonical). Writes the stages that KILN_DUMP asks for, and the cache's
// entry.
CompiledHost compile_for_host(const Kernel& kernel, const CacheLayers& cache = disk_cache());

// What the cache has; none if it has nothing sound, or if KILN_DUMP wants the stages, which only a
// compilation has.
std::optional<HostObject> cached_host_code(const Kernel& kernel,
                                           const CacheLayers& cache = disk_cache());

}  // namespace kiln
