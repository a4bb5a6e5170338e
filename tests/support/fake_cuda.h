// A CUDA driver without a GPU, for tests: what it is told to be, and what it has seen.
//
// It is a shared library of its own with libcuda's names, so that the code under test opens it as
// it opens the real one. Device memory is host memory; of kernels it knows saxpy and scale, and
// whatever `execute` can run. A cubin is ELF's magic and the PTX it was made from; one that holds
// the word `corrupt` is refused. Work is done when it is queued; what a captured stream gets is
// done when the graph is launched.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime/cuda_api.h"

namespace kiln::test {

struct FakeDevice {
  std::string name;
  int major, minor;
  size_t memory;
};

class FakeCuda {
 public:
  static constexpr std::array kEntries = {
#define KILN_CUDA(member, symbol, ...) symbol,
#include "runtime/cuda_api.def"
#undef KILN_CUDA
  };
  static constexpr size_t entry(std::string_view symbol) {
    for (size_t i = 0; i < kEntries.size(); ++i)
      if (kEntries[i] == symbol) return i;
    throw std::logic_error("no such entry point: " + std::string(symbol));
  }

  // The script. Devices: two of sm_90, one of sm_70, one of sm_80.
  int driver_version = 12040;
  std::vector<FakeDevice> devices = {{"Fake H200", 9, 0, size_t{1} << 37},
                                     {"Fake H200", 9, 0, size_t{1} << 37},
                                     {"Fake V100", 7, 0, size_t{1} << 34},
                                     {"Fake A100", 8, 0, size_t{1} << 36}};
  size_t free_memory = size_t{3} << 30;  // allocations beyond it fail
  int registers = 32, local_bytes = 0, static_shared = 1024, max_threads = 1024;
  std::string jit_log = "ptxas info    : Used 32 registers";

  cuda::CUstream captured = nullptr;  // the stream that is being captured into a graph
  int64_t launches_left = -1;         // launches beyond so many fail; -1: none does

  // Every later call of the entry point answers `result`.
  void fail(std::string_view symbol, cuda::Result result) {
    answers_[entry(symbol)] = result;
  }
  int64_t calls(std::string_view symbol) const {
    return calls_[entry(symbol)];
  }
  int64_t all_calls() const {
    int64_t sum = 0;
    for (const auto& count : calls_) sum += count;
    return sum;
  }

  struct Launch {
    std::string function;
    std::array<unsigned, 3> grid, block;
    unsigned dynamic_shared;
    cuda::CUstream stream;
    std::array<std::byte, 1024> params;
    size_t param_bytes;
    int device;
    bool early;  // may begin while what was queued before it runs
  };
  Launch last_launch = {}, launch_before = {};
  // Runs a kernel of this PTX that the driver does not know; null: it does nothing.
  cuda::Result (*execute)(FakeCuda& fake, const Launch& launch, const std::string& code) = nullptr;
  std::optional<std::vector<std::string>> history;  // if it is there: functions as launched
  std::mutex launching;

  std::string loaded;  // the code that was loaded last

  // What tensor maps were made from, in order. The words of a map are its number here, from 1 on.
  struct Map {
    int dtype;
    const void* memory;
    std::vector<uint64_t> extents, strides;
    std::vector<unsigned> box, steps;
    int interleave, swizzle, promotion, fill;
  };
  std::vector<Map> maps;

  struct Block {
    size_t bytes;
    int device;
    bool pinned;
  };
  std::map<uint64_t, Block> blocks;              // what is allocated, by address
  std::map<int, int> retained;                   // primary contexts, by device; stays over a reset
  int64_t modules = 0, events = 0;               // that are alive
  cuda::Result pending = cuda::Result::Success;  // a kernel's failure: every call reports it now

  // Back to a fresh script. What is allocated or loaded stays.
  void (*reset)(FakeCuda&) = nullptr;
  // This thread's context stack, the current one last; to set up what others left there.
  std::vector<cuda::CUcontext>& (*stack)() = nullptr;
  cuda::CUcontext (*context_of)(int device) = nullptr;

  cuda::Result enter(size_t index) {
    calls_[index].fetch_add(1, std::memory_order_relaxed);
    return answers_[index] != cuda::Result::Success ? answers_[index] : pending;
  }
  void forget() {
    answers_.fill(cuda::Result::Success);
    for (auto& count : calls_) count = 0;
  }

 private:
  std::array<cuda::Result, kEntries.size()> answers_ = {};
  std::array<std::atomic<int64_t>, kEntries.size()> calls_ = {};
};

}  // namespace kiln::test

// The one of the library.
extern "C" kiln::test::FakeCuda* kiln_fake_cuda();
