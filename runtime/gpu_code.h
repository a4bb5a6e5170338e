// From a kernel to the PTX of one GPU architecture, with the disk cache; needs no GPU.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "codegen/nvptx.h"
#include "ir/kernel.h"

namespace kiln {

// The name of a kernel's entry in the disk cache: equal exactly if the code would be.
std::string gpu_cache_key(const Kernel& kernel, std::string_view target);

struct CompiledPtx {
  GpuCode code;
  double passes_ms = 0, codegen_ms = 0;
};
// `kernel` is as traced (canonical), `target` a name of passes/gpu_target.h. Writes the stages that
// KILN_DUMP asks for, and the disk cache's entry.
CompiledPtx compile_for_gpu(const Kernel& kernel, std::string_view target);

// What the disk cache has; none if it has nothing sound, or if KILN_DUMP wants the stages, which
// only a compilation has.
std::optional<GpuCode> cached_gpu_code(const Kernel& kernel, std::string_view target);

}  // namespace kiln
