// Inside the host tier: which CPU code is for, and compiling for another one than this. No LLVM
// here.
#pragma once

#include <string>
#include <vector>

#include "codegen/host.h"

namespace kiln::host {

struct Target {
  std::string cpu;
  std::string features;  // LLVM's list, "+avx,-sse4a,…"
  int lanes = 4;         // f32 in a vector register
  int registers = 16;    // vector registers
  bool fma = false;
  bool f16c = false;
  bool avx512 = false;  // F, BW, DQ and VL
};

const Target& this_cpu();
Target named_cpu(
    const std::string& cpu);  // as LLVM names it, "x86-64-v3"; InternalError if unknown

HostObject compile(const Kernel& kernel, const Target& target);
std::string llvm_ir(const Kernel& kernel, const Target& target);
std::string assembly(const Kernel& kernel, const Target& target);

// kiln::slots_of without maps: a copy is a copy here.
std::vector<Slot> slots_without_maps(const Kernel& kernel, const Op& launch);

// What compiled code calls for op `watch`, as kiln_watch. `image`: the elements in row-major order.
void report_watch(const char* headline, int64_t space, int64_t dtype, int64_t rank,
                  const int64_t* shape, const std::byte* image, int64_t x, int64_t y, int64_t z);

}  // namespace kiln::host

namespace kiln {

// The top-level ops that a launch needs, in the order of the body: the tensors it uses, and the
// scalars that it, they, and those scalars use.
std::vector<OpId> interface_of(const Kernel& kernel, const Op& launch);

}  // namespace kiln
