// Compiling for later, or for other machines: the disk cache is filled, nothing is loaded. No GPU
// is needed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "runtime/cache.h"

namespace kiln {

struct Artifact {
  std::string what;  // "PTX for sm_90", "cubin for sm_90 by ptxas V13.0.88", "code for host"
  uint64_t bytes = 0;
  double milliseconds = 0;   // that making it took
  bool was_present = false;  // the cache had it
};

// Puts into `cache` what compile(device, kernel) looks for there on a device of this target: "host"
// (this CPU), or a GPU's architecture, "sm_90" — PTX and, if KILN_PTXAS says so, the cubin of that
// ptxas, which machines without one use too. UserError if the target cannot run the kernel, or if
// an entry cannot be stored.
std::vector<Artifact> prepare(std::string_view target, const Kernel& kernel,
                              const CacheLayers& cache = disk_cache());

}  // namespace kiln
