// Two GPUs in one process: each has code, workspaces and a context of its own, and the caller's
// current context stays what it was. Against the fake driver, which refuses a launch in another
// GPU's context.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "runtime/compile.h"
#include "runtime/cuda_device.h"
#include "tests/runtime/gpu_support.h"

using namespace kiln;
using namespace kiln::test;

namespace {

constexpr const char* kDevices[] = {"cuda:0", "cuda:1"};

std::shared_ptr<const CudaExecutable> on_gpu(const Kernel& kernel, const char* name) {
  return cuda_executable(compile(device(name), kernel));
}

// The devices whose memory the parameters of a launch point to.
std::vector<int> owners(const FakeCuda& fake, const FakeCuda::Launch& launch) {
  std::vector<int> owners;
  for (size_t at = 0; at < launch.param_bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, launch.params.data() + at, sizeof word);
    auto block = fake.blocks.upper_bound(word);
    if (block == fake.blocks.begin()) continue;
    --block;
    if (word < block->first + block->second.bytes) owners.push_back(block->second.device);
  }
  return owners;
}

}  // namespace

TEST_CASE("cuda: a kernel on two GPUs uses each one's context, memory and workspace") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  for (int round = 0; round < 3; ++round)
    for (int own : {0, 1})
      for (int current : {0, 1}) {
        const auto two = on_gpu(two_launch_kernel(), kDevices[own]);
        OnDevice x(device(kDevices[own]), iota(20)), y(device(kDevices[own]), F32, {10});
        const Memory* tensors[] = {&x.memory(), &y.memory()};
        fake.stack() = {fake.context_of(current)};
        two->launch({.tensors = tensors}, nullptr);
        CHECK(fake.stack() == std::vector{fake.context_of(current)});
        for (const FakeCuda::Launch* launch : {&fake.launch_before, &fake.last_launch}) {
          CHECK(launch->device == own);
          CHECK(owners(fake, *launch) == std::vector{own, own});  // a tensor and the workspace
        }
        fake.stack().clear();
      }
}

TEST_CASE("cuda: threads launch on two GPUs in turn") {
  fake_cuda();
  FreshCache cache;
  struct Work {
    std::shared_ptr<const CudaExecutable> kernel;
    std::unique_ptr<OnDevice> x, y;
  };
  constexpr int kThreads = 4;
  std::vector<std::vector<Work>> work(kThreads);
  for (auto& mine : work)
    for (const char* name : kDevices)
      mine.push_back({on_gpu(scale_kernel(), name),
                      std::make_unique<OnDevice>(device(name), iota(500)),
                      std::make_unique<OnDevice>(device(name), F32, Shape{500})});
  std::atomic<int> errors{0};
  std::vector<std::thread> threads;
  for (auto& mine : work)
    threads.emplace_back([&] {
      for (int round = 1; round <= 100; ++round)
        for (const Work& one : mine) {
          const Memory* tensors[] = {&one.x->memory(), &one.y->memory()};
          const Scalar factor = Scalar::of_float(F32, round);
          try {
            one.kernel->launch({.tensors = tensors, .params = {&factor, 1}}, nullptr);
          } catch (const std::exception&) {
            ++errors;
          }
        }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(errors == 0);
  std::vector<float> expected = iota(500);
  for (float& value : expected) value *= 100;
  for (const auto& mine : work)
    for (const Work& one : mine) CHECK(one.y->values() == expected);
}
