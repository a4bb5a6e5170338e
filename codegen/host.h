// The host tier: a lowered kernel becomes machine code for this CPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/abi.h"
#include "ir/kernel.h"

namespace kiln {

// Runs one block. `scratch` is 64-byte aligned and private to the calling thread for the call.
using HostEntry = void (*)(const uint64_t* slots, int64_t x, int64_t y, int64_t z, void* scratch);

struct HostLaunch {
  std::string entry;  // symbol
  std::vector<Slot> slots;
  uint64_t scratch_bytes;  // tiles of one block
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

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
