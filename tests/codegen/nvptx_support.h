// Lowers kernels for GPUs, and runs their PTX in the emulator.
#pragma once

#include <initializer_list>
#include <random>
#include <string>

#include "codegen/nvptx.h"
#include "ir/kernel.h"
#include "tests/codegen/harness.h"
#include "tests/support/ptxas.h"

namespace kiln::testing {

// Through the pipeline of the GPU tier, verified after every pass.
Kernel lowered(Kernel kernel, const std::string& target);
GpuCode compile_for(const Kernel& kernel, const std::string& target);

size_t occurrences(const std::string& text, const std::string& part);

// Compiles for the target, runs in the emulator, asynchronous copies as late as they may be, and
// compares with the interpreter; the first finding or difference, empty if there is none.
std::string emulation_fault(const Kernel& kernel, const std::string& target, const Check& check);

// What random tests choose from; without a seed that of this run, which is printed.
struct Random {
  explicit Random(uint64_t seed = random_seed()) : bits(seed) {}
  std::mt19937_64 bits;

  int64_t operator()(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(bits);
  }
  int64_t below(int64_t end) { return (*this)(0, end - 1); }
  bool chance(int percent) { return below(100) < percent; }
  bool coin() { return (*this)(0, 1) != 0; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return *(list.begin() + (*this)(0, static_cast<int64_t>(list.size()) - 1));
  }
  std::string target() { return of<std::string>({"sm_80", "sm_89", "sm_90"}); }
  Check check() {
    Check made;
    made.options.seed = bits();
    made.options.padded = coin();
    return made;
  }
};

}  // namespace kiln::testing
