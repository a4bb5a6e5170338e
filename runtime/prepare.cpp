#include "runtime/prepare.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "ir/log.h"
#include "passes/reports.h"
#include "runtime/cubins.h"
#include "runtime/gpu_artifact.h"
#include "runtime/gpu_code.h"
#include "runtime/host_artifact.h"
#include "runtime/host_code.h"
#include "runtime/lowering.h"
#include "runtime/stats.h"

namespace kiln {
namespace {

// Why nothing can be stored.
std::string reason(const CacheLayers& cache) {
  const std::vector<CacheInfo> all = cache.info();
  if (all.empty()) return "there is no disk cache";
  const CacheInfo& own = all.front();
  return fmt::format("{}: {}", own.directory,
                     !own.problem.empty() ? own.problem
                     : !own.writable      ? "it is read-only"
                                          : "it has no room");
}

void require_stored(bool stored, const std::string& what, const Kernel& kernel,
                    const CacheLayers& cache) {
  if (stored) return;
  throw UserError(fmt::format("{}: the {} cannot be stored: {}", kernel.name, what, reason(cache)),
                  "a directory that this user may write: KILN_CACHE_DIR, or --out of `kiln "
                  "prebuild`; KILN_CACHE=on");
}

Artifact prepare_host(const Kernel& traced, const CacheLayers& cache) {
  const Kernel kernel = instrument(traced, Watches::Direct).kernel;
  Artifact made{"code for host"};
  auto object = cached_host_code(kernel, cache);
  made.was_present = object.has_value();
  if (!object) {
    CompiledHost compiled = compile_for_host(kernel, cache);
    require_stored(compiled.stored, made.what, kernel, cache);
    made.milliseconds = compiled.passes_ms + compiled.codegen_ms;
    object = std::move(compiled.object);
  }
  made.bytes = encode(*object).size();
  return made;
}

Artifact prepare_ptx(const Kernel& kernel, const std::string& arch, const CacheLayers& cache,
                     std::string& ptx) {
  Artifact made{fmt::format("PTX for {}", arch)};
  auto code = cached_gpu_code(kernel, arch, cache);
  made.was_present = code.has_value();
  if (!code) {
    CompiledPtx compiled = compile_for_gpu(kernel, arch, cache);
    require_stored(compiled.stored, made.what, kernel, cache);
    made.milliseconds = compiled.passes_ms + compiled.codegen_ms;
    code = std::move(compiled.code);
  }
  made.bytes = encode(*code).size();
  ptx = std::move(code->ptx);
  return made;
}

// Under the version of the ptxas, as compiling would store it, and for those who have none.
Artifact prepare_cubin(const Kernel& kernel, const std::string& ptx, const std::string& arch,
                       const ExternalPtxas& ptxas, const CacheLayers& cache) {
  Artifact made{fmt::format("cubin for {} by ptxas {}", arch, ptxas.version)};
  const Cubins cubins(ptx, arch);
  auto cubin = cubins.load(ptxas, cache);
  if (!cubin) {
    Stopwatch watch;
    cubin = cubins.make(ptxas, kernel.name, cache);
    made.milliseconds = watch.lap_ms();
    require_stored(cubins.load(ptxas, cache) == cubin, made.what, kernel, cache);
  } else {
    made.was_present = cubins.load(std::nullopt, cache) == cubin;
  }
  if (!made.was_present)
    require_stored(cubins.store_prepared(*cubin, cache), made.what, kernel, cache);
  made.bytes = cubin->size();
  return made;
}

std::vector<Artifact> prepare_gpu(const GpuTarget& gpu, const Kernel& traced,
                                  const CacheLayers& cache) {
  const Kernel kernel = instrument(traced, Watches::Recorded).kernel;
  const std::string arch = code_arch(kernel, gpu.name);
  if (!runs_on(gpu_target(arch), gpu.capability))
    throw UserError(
        fmt::format("{} is scheduled for {}: {} cannot run it", kernel.name, arch, gpu.name),
        fmt::format("prepare it for {}", arch));
  std::string ptx;
  std::vector<Artifact> all{prepare_ptx(kernel, arch, cache, ptx)};
  const auto ptxas = external_ptxas();
  if (!ptxas) return all;
  try {
    const std::string cubin = cubin_arch(gpu_target(arch), gpu.capability);
    all.push_back(prepare_cubin(kernel, ptx, cubin, *ptxas, cache));
  } catch (const DeviceError& error) {
    if (ptxas->chosen) throw;
    log_message(LogLevel::Warning,
                fmt::format("there will be no cubin, only PTX: {}", error.message()));
  }
  return all;
}

}  // namespace

std::vector<Artifact> prepare(std::string_view target, const Kernel& kernel,
                              const CacheLayers& cache) {
  const Kernel own = compilable(kernel);
  if (target == "host") return {prepare_host(own, cache)};
  return prepare_gpu(gpu_target(target), own, cache);
}

}  // namespace kiln
