// A library kernel by name on tensors of a test's own, against its float64 reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kernels/compare.h"
#include "runtime/array.h"
#include "runtime/compile.h"

namespace kiln::test {

struct EntryRun {
  std::string kernel;
  std::map<std::string, std::string> settings;
  Arguments arguments;                    // inputs and params; defaults are added
  std::map<std::string, Array*> outputs;  // 77 everywhere before the run
};
// Runs it and CHECKs every output of the reference: by the rule for its name, else exactly.
void check_entry(Device& device, const EntryRun& run,
                 const std::map<std::string, AccuracyRule>& rules = {});
// The host, the interpreter if asked for, and the emulator; or what KILN_TEST_DEVICE names.
std::vector<std::string> devices_and_emulator(bool interpreter);

}  // namespace kiln::test
