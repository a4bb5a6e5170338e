#include "tools/kiln/gpu_code.h"

#include <fmt/format.h>

#include "ir/error.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "runtime/cuda_context.h"
#include "runtime/environment.h"
#include "runtime/external_ptxas.h"
#include "runtime/lowering.h"
#include "tools/kiln/common.h"

namespace kiln::cli {

std::string arch_or_default(const std::string& given) {
  if (!given.empty()) return std::string(gpu_target(given).name);
  if (auto wanted = environment("KILN_CUDA_ARCH")) return std::string(gpu_target(*wanted).name);
  const auto gpu = cuda::usable_gpu();
  return gpu ? std::string(gpu_target_for(gpu->capability()).name) : "sm_90";
}

std::string arch_for(const Kernel& kernel, const std::string& given) {
  const bool own = given.empty() && !kernel.target.empty() && first_late_op(kernel);
  return own ? kernel.target : arch_or_default(given);
}

Kernel lowered_for_gpu(Kernel kernel, const std::string& arch, const PassOptions& options) {
  leave_out_passes(kernel);
  return lowered(kernel, Tier::Sm80, arch, nullptr, options);
}

std::string sass_of(const GpuCode& code, const std::string& arch) {
  const auto ptxas = find_ptxas();
  if (!ptxas)
    throw UserError("--sass: no ptxas in PATH, in /usr/local/cuda or in KILN_PTXAS",
                    "a CUDA toolkit has them; --ptx needs none");
  return disassemble(*ptxas, assemble(*ptxas, code.ptx, arch, code.launches.at(0).entry).cubin);
}

}  // namespace kiln::cli
