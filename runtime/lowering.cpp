#include "runtime/lowering.h"

#include <fmt/format.h>

#include "ir/print.h"

namespace kiln {

Kernel lowered(const Kernel& kernel, Tier tier, std::string_view target, Dump* dump) {
  Kernel result = kernel;
  result.target = target;
  PassOptions options;
  int stage = 0;
  if (dump && *dump) {
    dump->write("00_traced.tile", print(kernel));
    options.after_each = [&](const PassRun& pass, const Kernel& now) {
      dump->write(fmt::format("{:02}_{}.tile", ++stage, pass.name), print(now));
    };
  }
  run_passes(result, pipeline_for(tier), options);
  return result;
}

}  // namespace kiln
