#include "runtime/gpu_code.h"

#include <fmt/format.h>

#include "codegen/host.h"
#include "ir/canon.h"
#include "ir/walk.h"
#include "runtime/gpu_artifact.h"
#include "runtime/lowering.h"
#include "runtime/stats.h"
#include "runtime/version.h"

namespace kiln {

std::string gpu_cache_key(const Kernel& kernel, std::string_view target) {
  return hash_text(fmt::format("{}\nptx {}\n{}\n{}\n{}\n{}", hash(kernel), target,
                               pipeline_fingerprint(Tier::Sm80), llvm_version(), version(),
                               build_id()));
}

CompiledPtx compile_for_gpu(const Kernel& kernel, std::string_view target,
                            const CacheLayers& cache) {
  const std::string key = gpu_cache_key(kernel, target);
  Dump dump(kernel.name, key);
  CompiledPtx result;
  Stopwatch watch;
  const Kernel kernel_for_gpu = lowered(kernel, Tier::Sm80, target, &dump);
  result.passes_ms = watch.lap_ms();
  result.code = compile_ptx(kernel_for_gpu);
  result.codegen_ms = watch.lap_ms();
  if (dump) {
    dump.write("kernel.ll", gpu_llvm_ir(kernel_for_gpu));
    dump.write("kernel.ptx", result.code.ptx);
  }
  result.stored = cache.store(key, encode(result.code));
  return result;
}

std::optional<GpuCode> cached_gpu_code(const Kernel& kernel, std::string_view target,
                                       const CacheLayers& cache) {
  const std::string key = gpu_cache_key(kernel, target);
  if (Dump(kernel.name, key)) return std::nullopt;
  auto bytes = cache.load(key);
  return bytes ? decode_gpu_code(*bytes) : std::nullopt;
}

std::string code_arch(const Kernel& kernel, std::string_view own) {
  const bool is_scheduled = !kernel.target.empty() && first_late_op(kernel);
  return is_scheduled ? kernel.target : std::string(own);
}

bool runs_on(const GpuTarget& code, int capability) {
  const bool own_only = code.name.ends_with('a');
  return own_only ? capability == code.capability : capability >= code.capability;
}

}  // namespace kiln
