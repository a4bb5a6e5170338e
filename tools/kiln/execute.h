// Runs any kernel on files: what `kiln call` and `kiln run FILE.tile` have in common.
#pragma once

#include <functional>
#include <string>

#include "tools/kiln/common.h"
#include "tools/kiln/profile.h"

namespace kiln::cli {

struct FileRun {
  NamedTexts inputs, outputs;  // name to path
  Device& device;
  EmulatorChoice emulator = {};
};

// Loads the inputs into `arguments`, launches, writes the outputs. `check` sees the bindings of
// host memory first.
void run_on_files(const Kernel& kernel, const FileRun& files, Arguments arguments,
                  const std::function<void(const Bindings&)>& check = {});

}  // namespace kiln::cli
