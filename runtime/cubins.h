// Cubins in the disk cache: what a ptxas made of PTX for one GPU architecture.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "passes/gpu_target.h"
#include "runtime/cache.h"
#include "runtime/external_ptxas.h"

namespace kiln {

// What PTX for `code` is assembled for on a GPU of this capability: "sm_86" of sm_80's, but
// "sm_90a" of its own.
std::string cubin_arch(const GpuTarget& code, int capability);

// Those of one PTX text for one architecture. Each version of ptxas has an entry of its own; one
// more is for machines that have none, and only prepare() writes it.
class Cubins {
 public:
  Cubins(std::string_view ptx, std::string arch) : ptx_(ptx), arch_(std::move(arch)) {}

  // Of this ptxas; the prepared one if there is none.
  std::optional<std::string> load(const std::optional<ExternalPtxas>& ptxas,
                                  const CacheLayers& cache) const;
  // DeviceError as assemble; `name` is the kernel's.
  std::string make(const ExternalPtxas& ptxas, const std::string& name,
                   const CacheLayers& cache) const;
  // Stores it for machines without a ptxas. False if it cannot.
  bool store_prepared(std::string_view cubin, const CacheLayers& cache) const;

 private:
  std::string key(std::string_view maker) const;

  std::string_view ptx_;
  std::string arch_;
};

}  // namespace kiln
