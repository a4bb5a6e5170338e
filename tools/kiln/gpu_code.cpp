#include "tools/kiln/gpu_code.h"

#include <fmt/format.h>

#include <charconv>

#include "ir/error.h"
#include "passes/gpu_target.h"
#include "runtime/cuda_context.h"
#include "runtime/environment.h"
#include "runtime/external_ptxas.h"

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

}  // namespace

std::string arch_or_default(const std::string& given) {
  if (!given.empty()) return std::string(gpu_target(given).name);
  if (auto wanted = environment("KILN_CUDA_ARCH")) return std::string(gpu_target(*wanted).name);
  try {
    if (cuda::device_count() > 0) {
      const auto properties = cuda::device_properties(cuda::default_ordinal());
      if (properties.usable()) return std::string(gpu_target_for(properties.capability()).name);
    }
  } catch (const DeviceError&) {
    // no GPU here
  }
  return "sm_90";
}

Kernel lowered_for_gpu(Kernel kernel, const std::string& arch, const PassOptions& options) {
  kernel.target = arch;
  run_passes(kernel, pipeline_for(Tier::Sm80), options);
  return kernel;
}

std::vector<Resources> resources_of(const GpuCode& code, const std::string& arch) {
  const auto ptxas = find_ptxas();
  std::vector<Resources> all;
  if (!ptxas) return all;
  const std::string log = assemble(*ptxas, code.ptx, arch, code.launches.at(0).entry).log;
  for (const GpuLaunch& launch : code.launches) {
    const size_t at = log.find("'" + launch.entry + "'");
    if (at == log.npos) return {};
    all.push_back({number_before(log, " registers", at), number_before(log, " bytes stack", at),
                   "ptxas " + ptxas->version});
  }
  return all;
}

std::string sass_of(const GpuCode& code, const std::string& arch) {
  const auto ptxas = find_ptxas();
  if (!ptxas)
    throw UserError("no ptxas in PATH or KILN_PTXAS", "install a CUDA toolkit; --ptx needs none");
  return disassemble(*ptxas, assemble(*ptxas, code.ptx, arch, code.launches.at(0).entry).cubin);
}

}  // namespace kiln::cli
