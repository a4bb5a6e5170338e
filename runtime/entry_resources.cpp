#include "runtime/entry_resources.h"

#include <cctype>
#include <charconv>

#include "ir/error.h"
#include "runtime/cuda_device.h"
#include "runtime/cuda_error.h"
#include "runtime/external_ptxas.h"

namespace kiln {
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

std::vector<EntryResources> by_ptxas(const ExternalPtxas& ptxas, const GpuCode& code,
                                     std::string_view arch) {
  std::vector<EntryResources> all;
  const std::string log = assemble(ptxas, code.ptx, arch, code.launches.at(0).entry).log;
  for (const GpuLaunch& launch : code.launches) {
    const size_t at = log.find("'" + launch.entry + "'");
    if (at == log.npos) return {};
    all.push_back({number_before(log, " registers", at), number_before(log, " bytes stack", at),
                   "ptxas " + ptxas.version});
  }
  return all;
}

std::vector<EntryResources> by_driver(CudaDevice& device, const Kernel& kernel,
                                      const GpuCode& code) {
  std::vector<EntryResources> all;
  for (const cuda::Function& function : device.load(kernel, code)->functions())
    all.push_back({function.attributes().registers, function.attributes().local_bytes,
                   "driver CUDA " + cuda::version_text(cuda::api().driver_version)});
  return all;
}

}  // namespace

std::vector<EntryResources> entry_resources(const Kernel& kernel, const GpuCode& code,
                                            std::string_view arch) {
  if (code.launches.empty()) return {};
  if (const auto ptxas = find_ptxas()) return by_ptxas(*ptxas, code, arch);
  const auto gpu = cuda::usable_gpu();
  if (!gpu) return {};
  try {
    return by_driver(cuda_device(gpu->ordinal, arch), kernel, code);
  } catch (const Error&) {  // another GPU's code
    return {};
  }
}

}  // namespace kiln
