// The host tier: a lowered kernel becomes machine code for this CPU.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/abi.h"
#include "ir/kernel.h"

namespace kiln {

// Runs one block; of a launch with roles, what comes before them. `slots`: those of the launch, no
// maps, then the number of blocks. `scratch` is 64-byte aligned and private to the block.
using HostEntry = void (*)(const uint64_t* slots, int64_t x, int64_t y, int64_t z, void* scratch);

// How a role waits for another: returns true once `*count` is at least `least`, or false if the
// block is being given up; then the role returns. `wait` is an index of HostLaunch::waits.
struct HostAgent {
  bool (*await)(HostAgent* self, const int64_t* count, int64_t least, int64_t wait);
};
// One role of a block whose entry has run, on the same scratch memory.
using HostRoleEntry = void (*)(const uint64_t* slots, int64_t x, int64_t y, int64_t z,
                               void* scratch, HostAgent* agent);

struct HostRole {
  std::string name, entry;
  bool operator==(const HostRole&) const = default;
};

struct HostWait {
  Loc loc;
  std::string what;  // "pop of channel f16[64, 64]: nothing was pushed"
};

struct HostLaunch {
  std::string entry;  // symbol
  std::vector<Slot> slots;
  uint64_t scratch_bytes;  // tiles and channels of one block
  std::vector<HostRole> roles = {};
  std::vector<HostWait> waits = {};  // all places where roles wait
};

// Relocatable machine code and what is needed to call it; plain data, fit for a disk cache.
struct HostObject {
  std::string code;  // ELF object
  std::vector<HostLaunch> launches;
};

// CPU name and features the code is for; part of cache keys.
const std::string& host_cpu();
std::string llvm_version();

// `kernel` has been through pipeline_for(Tier::Host). InternalError if it holds an op that the tier
// cannot emit.
HostObject compile_host(const Kernel& kernel);
std::string host_llvm_ir(const Kernel& kernel);  // optimised LLVM IR text
std::string host_assembly(const Kernel& kernel);

// Machine code linked into this process; callable from many threads.
class HostCode {
 public:
  explicit HostCode(const HostObject& object);
  ~HostCode();
  HostCode(const HostCode&) = delete;
  HostEntry entry(size_t launch) const;
  HostRoleEntry role(size_t launch, size_t number) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Runs one block to its end, its roles in turns. DeviceError if all that are left wait.
void run_block(const HostCode& code, size_t number, const HostLaunch& launch, const uint64_t* slots,
               const std::array<int64_t, 3>& block, void* scratch);

}  // namespace kiln
