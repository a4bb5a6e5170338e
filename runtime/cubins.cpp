#include "runtime/cubins.h"

#include <fmt/format.h>

#include "ir/canon.h"

namespace kiln {

static constexpr std::string_view kPrepared = "prepared";

std::string cubin_arch(const GpuTarget& code, int capability) {
  return code.name.ends_with('a') ? std::string(code.name) : fmt::format("sm_{}", capability);
}

std::string Cubins::key(std::string_view maker) const {
  return hash_text(fmt::format("cubin {}\n{}\n{}", arch_, maker, ptx_));
}

std::optional<std::string> Cubins::load(const std::optional<ExternalPtxas>& ptxas,
                                        const CacheLayers& cache) const {
  return cache.load(key(ptxas ? std::string_view(ptxas->version) : kPrepared));
}

std::string Cubins::make(const ExternalPtxas& ptxas, const std::string& name,
                         const CacheLayers& cache) const {
  Assembled assembled = assemble(ptxas, ptx_, arch_, name);
  cache.store(key(ptxas.version), assembled.cubin);
  return std::move(assembled.cubin);
}

bool Cubins::store_prepared(std::string_view cubin, const CacheLayers& cache) const {
  return cache.store(key(kPrepared), cubin);
}

}  // namespace kiln
