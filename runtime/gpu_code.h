// From a kernel to the PTX of one GPU architecture, with the disk cache; needs no GPU.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/nvptx.h"
#include "ir/kernel.h"
#include "passes/gpu_target.h"
#include "runtime/cache.h"

namespace kiln {

// The name of a kernel's entry in the disk cache: equal exactly if the code would be.
std::string gpu_cache_key(const Kernel& kernel, std::string_view target);

struct CompiledPtx {
  GpuCode code;
  double passes_ms = 0, codegen_ms = 0;
  bool stored = false;  // in the cache
};
// `kernel` is as traced (canonical), `target` a name of passes/gpu_target.h. Writes the stages that
// KILN_DUMP asks for, and the cache's entry.
CompiledPtx compile_for_gpu(const Kernel& kernel, std::string_view target,
                            const CacheLayers& cache = disk_cache());

// What the cache has; none if it has nothing sound, or if KILN_DUMP wants the stages, which only a
// compilation has.
std::optional<GpuCode> cached_gpu_code(const Kernel& kernel, std::string_view target,
                                       const CacheLayers& cache = disk_cache());

// The architecture that a kernel's code is made for on a device of architecture `own`: the
// device's, unless the kernel is scheduled for another, as sm_90a beside sm_90.
std::string code_arch(const Kernel& kernel, std::string_view own);

// Does a GPU of this capability run the code? PTX runs on its own architecture and later ones; that
// of an `a` target on its own only.
bool runs_on(const GpuTarget& code, int capability);

}  // namespace kiln
