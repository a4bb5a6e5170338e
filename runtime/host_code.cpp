#include "runtime/host_code.h"

#include <fmt/format.h>

#include "ir/canon.h"
#include "runtime/host_artifact.h"
#include "runtime/lowering.h"
#include "runtime/stats.h"
#include "runtime/version.h"

namespace kiln {

std::string host_target() {
  return "host " + host_cpu();
}

std::string host_cache_key(const Kernel& kernel) {
  return hash_text(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", hash(kernel), host_target(),
                               pipeline_fingerprint(Tier::Host), llvm_version(), version(),
                               build_id()));
}

CompiledHost compile_for_host(const Kernel& kernel, const CacheLayers& cache) {
  const std::string key = host_cache_key(kernel);
  Dump dump(kernel.name, key);
  CompiledHost result;
  Stopwatch watch;
  const Kernel kernel_for_cpu = lowered(kernel, Tier::Host, "", &dump);
  result.passes_ms = watch.lap_ms();
  result.object = compile_host(kernel_for_cpu);
  result.codegen_ms = watch.lap_ms();
  if (dump) {
    dump.write("host.ll", host_llvm_ir(kernel_for_cpu));
    dump.write("host.s", host_assembly(kernel_for_cpu));
  }
  result.stored = cache.store(key, encode(result.object));
  return result;
}

std::optional<HostObject> cached_host_code(const Kernel& kernel, const CacheLayers& cache) {
  const std::string key = host_cache_key(kernel);
  if (Dump(kernel.name, key)) return std::nullopt;
  auto bytes = cache.load(key);
  return bytes ? decode_host_object(*bytes) : std::nullopt;
}

}  // namespace kiln
