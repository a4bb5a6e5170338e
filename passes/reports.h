// How device_assert and watch reach the user from devices that compile: through workspaces, which
// are read when a run has come to its end.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

// What the device_asserts and watches of one kernel leave behind.
class Reports {
 public:
  bool empty() const { return assertions_.empty() && watches_.empty(); }

  // The bytes of a workspace of the instrumented kernel, by name; alive until the next call.
  using Workspace = std::function<const std::byte*(const std::string& name, size_t bytes)>;
  // Says to the log (ir/log.h) what was watched, block by block; then UserError of the first
  // device_assert, in program order, whose condition did not hold.
  void deliver(const Workspace& workspace) const;

 private:
  friend class Instrumentation;

  struct Assertion {
    Loc loc;
    std::string text;
  };
  struct Watch {
    std::string headline;
    Type type;
    int64_t capacity;  // records
  };
  void deliver(const Watch& watch, size_t number, int64_t records,
               const Workspace& workspace) const;

  std::vector<Assertion> assertions_;
  std::vector<Watch> watches_;
};

// Direct: the code generator of the device writes them out itself; the op's text becomes the
// headline (ir/report.h). Recorded: in workspaces, as many as fit there.
enum class Watches : uint8_t { Direct, Recorded };

struct Instrumented {
  Kernel kernel;
  Reports reports;
};
// The kernel with its workspaces, a launch that clears them first, and ordinary ops in place of
// device_assert and, where recorded, watch; the kernel itself if it has none.
Instrumented instrument(const Kernel& traced, Watches watches);

}  // namespace kiln
