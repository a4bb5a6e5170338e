#include "tools/kiln/gpu_code.h"

#include <fmt/format.h>

#include <charconv>

#include "ir/error.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_error.h"
#include "runtime/environment.h"
#include "runtime/external_ptxas.h"
#include "runtime/lowering.h"
#include "tools/kiln/common.h"

namespace kiln::cli {
namespace {

// The number before `what` in the text, searched from `from`; 0 if there is none.
int number_before(std::string_view text, std::string_view what, size_t from) {
  const size_t end = text.find(what, from);
  if (end == text.npos) return 0;
  size_t begin = end;
  while (begin > 0 && std::isdigit(static_cast<unsigned char>(text[begin - 1]))) --begin;
  int number = 0;
  std::from_chars(text.data() + begin, text.data() + end, number);
  return number;
}

std::vector<Assembled> by_ptxas(const ExternalPtxas& ptxas, const GpuCode& code,
                                const std::string& arch) {
  std::vector<Assembled> all;
  const std::string log = assemble(ptxas, code.ptx, arch, code.launches.at(0).entry).log;
  for (const GpuLaunch& launch : code.launches) {
    const size_t at = log.find("'" + launch.entry + "'");
    if (at == log.npos) return {};
    all.push_back({number_before(log, " registers", at), number_before(log, " bytes stack", at),
                   "ptxas " + ptxas.version});
  }
  return all;
}

std::vector<Assembled> by_driver(CudaDevice& device, const Kernel& kernel, const GpuCode& code) {
  std::vector<Assembled> all;
  for (const cuda::Function& function : device.load(kernel, code)->functions())
    all.push_back({function.attributes().registers, function.attributes().local_bytes,
                   "driver CUDA " + cuda::version_text(cuda::api().driver_version)});
  return all;
}

}  // namespace

std::string arch_or_default(const std::string& given) {
  if (!given.empty()) return std::string(gpu_target(given).name);
  if (auto wanted = environment("KILN_CUDA_ARCH")) return std::string(gpu_target(*wanted).name);
  const auto gpu = usable_gpu();
  return gpu ? std::string(gpu_target_for(gpu->capability()).name) : "sm_90";
}

std::string arch_for(const Kernel& kernel, const std::string& given) {
  const bool own = given.empty() && !kernel.target.empty() && first_late_op(kernel);
  return own ? kernel.target : arch_or_default(given);
}

Kernel lowered_for_gpu(Kernel kernel, const std::string& arch, const PassOptions& options) {
  leave_out_passes(kernel);
  if (first_late_op(kernel)) require_lowered(kernel, arch);
  kernel.target = arch;
  run_passes(kernel, passes_for(kernel, Tier::Sm80), options);
  return kernel;
}

std::vector<Assembled> assembled(const Kernel& kernel, const GpuCode& code,
                                 const std::string& arch) {
  if (code.launches.empty()) return {};
  if (const auto ptxas = find_ptxas()) return by_ptxas(*ptxas, code, arch);
  const auto gpu = usable_gpu();
  if (!gpu) return {};
  try {
    return by_driver(cuda_device(gpu->ordinal, arch), kernel, code);
  } catch (const Error&) {  // another GPU's code
    return {};
  }
}

std::string sass_of(const GpuCode& code, const std::string& arch) {
  const auto ptxas = find_ptxas();
  if (!ptxas)
    throw UserError("--sass: no ptxas in PATH, in /usr/local/cuda or in KILN_PTXAS",
                    "a CUDA toolkit has them; --ptx needs none");
  return disassemble(*ptxas, assemble(*ptxas, code.ptx, arch, code.launches.at(0).entry).cubin);
}

}  // namespace kiln::cli
