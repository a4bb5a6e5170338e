#include "passes/gpu_target.h"

#include <fmt/format.h>

#include <charconv>

#include "ir/error.h"

namespace kiln {
namespace {

// PTX versions: PTX ISA, "Release Notes"; the rest: CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability".
constexpr GpuTarget kTargets[] = {
    {"sm_80", 80, 70, 166912, 167936, 2048, 32},   {"sm_86", 86, 71, 101376, 102400, 1536, 16},
    {"sm_89", 89, 78, 101376, 102400, 1536, 24},   {"sm_90", 90, 78, 232448, 233472, 2048, 32},
    {"sm_90a", 90, 80, 232448, 233472, 2048, 32},  {"sm_100", 100, 86, 232448, 233472, 2048, 32},
    {"sm_120", 120, 87, 101376, 102400, 1536, 24},
};

std::string names() {
  std::string list;
  for (const GpuTarget& target : kTargets)
    list += fmt::format("{}{}", list.empty() ? "" : ", ", target.name);
  return list;
}

}  // namespace

std::span<const GpuTarget> gpu_targets() {
  return kTargets;
}

const GpuTarget& gpu_target(std::string_view name) {
  for (const GpuTarget& target : kTargets)
    if (target.name == name) return target;
  int capability = 0;
  if (name.starts_with("sm_"))
    std::from_chars(name.data() + 3, name.data() + name.size(), capability);
  if (capability > 0 && capability < kTargets[0].capability)
    throw UserError(fmt::format("GPU architecture {} is too old: expected sm_80 or later", name),
                    fmt::format("one of {}", names()));
  throw UserError(fmt::format("no GPU architecture is named '{}'", name),
                  fmt::format("one of {}", names()));
}

const GpuTarget& gpu_target_for(int capability) {
  const GpuTarget* best = nullptr;
  for (const GpuTarget& target : kTargets)
    if (target.capability <= capability && !target.name.ends_with('a')) best = &target;
  if (!best)
    throw UserError(fmt::format("a GPU of compute capability {}.{} is too old: expected 8.0 or "
                                "later",
                                capability / 10, capability % 10),
                    "the device \"host\"");
  return *best;
}

}  // namespace kiln
