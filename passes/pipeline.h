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
  bool optional = false;  // may be left out: results stay, but for what fast math may round
};

const std::vector<Pass>& all_passes();             // by name, for `kiln opt`
const std::vector<Pass>& pipeline_for(Tier tier);  // in order
// Those of the kernel's tier but for kernel.without. A kernel of the late IR is scheduled already:
// a GPU takes it as it is (if it has no roles, once its channels are lowered), the host needs its
// softmax expanded. UserError if a pass is left out that the rest needs.
std::vector<Pass> passes_for(const Kernel& kernel, Tier tier);
// Is all of the late IR in it channels of blocks without roles? Then lower_channels takes it.
bool only_channels(const Kernel& kernel);
// The names, '-' standing for '_', as kernel.without has them. UserError naming those that can be
// left out if one cannot or is none.
std::string passes_left_out(const std::vector<std::string>& names);
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
