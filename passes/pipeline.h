// The order of passes for each target, and the driver that runs, times, verifies and dumps them.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

enum class Tier { Host, Sm80 };

struct Pass {
  std::string_view name;
  void (*run)(Kernel&);
  std::string_view summary;
};

const std::vector<Pass>& all_passes();             // by name, for `kiln opt`
const std::vector<Pass>& pipeline_for(Tier tier);  // in order
// Those of the kernel's tier. A kernel of the late IR is scheduled already: a GPU takes it as it
// is, the host needs its softmax expanded.
std::vector<Pass> passes_for(const Kernel& kernel, Tier tier);
const Pass& pass_named(std::string_view name);  // UserError listing the names

struct PassRun {
  std::string_view name;
  double milliseconds;
  bool changed;
};
struct PassOptions {
  bool verify_each = false;  // after every pass; always on in debug builds
  // Called after each pass with the kernel as it is then; `kiln dump --after` and KILN_DUMP use it.
  std::function<void(const PassRun&, const Kernel&)> after_each;
};
// Verifies, runs the passes in order, verifies. A failure after a pass is an InternalError naming
// it. UserError if a pass that spreads work over threads meets the late IR, where that is done.
void run_passes(Kernel& kernel, std::span<const Pass> passes, const PassOptions& options = {});

// Changes when the list of passes or their order does; part of cache keys.
std::string pipeline_fingerprint(Tier tier);

}  // namespace kiln
