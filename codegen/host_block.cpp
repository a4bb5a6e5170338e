// One block of a launch: compiled roles take turns as coroutines.
#include "codegen/host.h"
#include "ir/coroutines.h"
#include "ir/error.h"

namespace kiln {
namespace {

// What the roles of a block call; who runs is known to the coroutines.
struct Block : HostAgent {
  Coroutines coroutines;
  const HostLaunch& launch;

  explicit Block(const HostLaunch& launch) : HostAgent{await_count}, launch(launch) {}

  static bool await_count(HostAgent* self, const int64_t* count, int64_t least, int64_t wait) {
    Block& block = *static_cast<Block*>(self);
    const Coroutines::Predicate ready = [=] { return *count >= least; };
    const Coroutines::Describe describe = [&block, wait] {
      const HostWait& at = block.launch.waits[static_cast<size_t>(wait)];
      return Waiting{at.loc, at.what};
    };
    return block.coroutines.try_wait(ready, describe);
  }
};

}  // namespace

void run_block(const HostCode& code, size_t number, const HostLaunch& launch, const uint64_t* slots,
               const std::array<int64_t, 3>& at, void* scratch) {
  code.entry(number)(slots, at[0], at[1], at[2], scratch);
  if (launch.roles.empty()) return;
  Block block(launch);
  std::vector<Agent> agents;
  for (size_t i = 0; i < launch.roles.size(); ++i)
    agents.push_back({launch.roles[i].name, [&, role = code.role(number, i)] {
                        role(slots, at[0], at[1], at[2], scratch, &block);
                      }});
  try {
    block.coroutines.run(std::move(agents));
  } catch (const UserError& deadlock) {  // of compiled code nothing else can be thrown
    throw DeviceError(deadlock.message(), "the interpreter tells more of what went wrong");
  }
}

}  // namespace kiln
