// The handle: calls by position on every device, what is refused, texts, threads.
#include "runtime/function.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "ir/error.h"
#include "runtime/compile.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

Scalar f32(double value) {
  return Scalar::of_float(F32, value);
}

// x of 2n elements summed by pairs through a workspace, by a handle of two_launch_kernel.
std::vector<double> sums(const Function& two, int64_t n, const Workspace& workspace = {}) {
  Array x(F32, {2 * n}), y(F32, {n});
  for (int64_t i = 0; i < 2 * n; ++i) x.set(i, static_cast<double>(i % 50));
  const Memory from = x.view(), to = y.view();
  const Memory* tensors[] = {&from, &to};
  two({.tensors = tensors}, nullptr, workspace);
  return y.values();
}

constexpr int kKernels = 20, kThreads = 8;

// Calls the kernel of that bias on n elements, by position; is the result right?
bool scales(const Function& scale, int64_t n, int bias) {
  Array x(F32, {n}), y(F32, {n});
  for (int64_t i = 0; i < n; ++i) x.set(i, static_cast<double>(i));
  const Memory from = x.view(), to = y.view();
  const Memory* tensors[] = {&from, &to};
  const Scalar factor = f32(3);
  scale({.tensors = tensors, .params = {&factor, 1}}, nullptr);
  for (int64_t i = 0; i < n; ++i)
    if (y.get(i) != static_cast<double>(3 * i + bias)) return false;
  return true;
}

}  // namespace

TEST_CASE("function: by position on every device, with and without a workspace of the caller's") {
  FreshCache cache;
  for (std::string_view name : {"host", "interpreter", "emulator"}) {
    INFO(name);
    const Function two = compile(device(name), two_launch_kernel());
    CHECK(&two.device() == &device(name));
    const std::vector<double> right = sums(two, 100);
    CHECK(right[7] == 2 * (14 + 15));
    // Whatever was in it, of an aborted call say, is nothing to the next.
    Array memory(U8, {1 << 12});
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    std::byte* const aligned = static_cast<std::byte*>(memory.data()) + (0 - begin) % 256;
    const Workspace workspace = {aligned, 3072};
    for (int garbage : {0, 0xff, 0x5a}) {
      std::memset(workspace.data, garbage, workspace.bytes);
      CHECK(sums(two, 100, workspace) == right);
    }
    CHECK_THAT(error_of([&] {
                 sums(two, 100, {aligned + 64, 2048});
               }),
               Contains("two_launches: workspace: expected an address that is a multiple of 256"));
    CHECK_THAT(error_of([&] {
                 sums(two, 100, {nullptr, 2048});
               }),
               Contains("two_launches: workspace: expected 2048 bytes") && Contains("got a null"));
    if (name == "interpreter") continue;  // which needs none
    CHECK_THAT(error_of([&] {
                 sums(two, 100, {aligned, 1023});
               }),
               Contains("two_launches: workspace: expected at least 1024 bytes, got 1023"));
  }
}

TEST_CASE("function: workspace_bytes from limits of dims") {
  FreshCache cache;
  const Function two = compile(device("host"), two_launch_kernel());
  CHECK(two.workspace_bytes({{"n", 100}}) == 1024);  // 200 f32 in blocks of 256 bytes
  CHECK(two.workspace_bytes({{"n", 0}}) == 0);
  Array memory(U8, {1 << 20});
  CHECK_THAT(error_of([&] { two.workspace_bytes({}); }),
             Contains("two_launches: workspace_bytes: dim n has no limit"));
  CHECK_THAT(error_of([&] {
               two.workspace_bytes({{"m", 1}});
             }),
             Contains("two_launches: workspace_bytes: there is no dim 'm'"));
  CHECK_THAT(error_of([&] {
               two.workspace_bytes({{"n", -1}});
             }),
             Contains("n: expected a limit of 0 or more, got -1"));
  CHECK(compile(device("interpreter"), two_launch_kernel()).workspace_bytes({}) == 0);
  CHECK(compile(device("host"), scale_kernel()).workspace_bytes({}) == 0);
}

TEST_CASE("function: streams are cuda's") {
  FreshCache cache;
  int stream;
  for (std::string_view name : {"host", "interpreter", "emulator"}) {
    const Function scale = compile(device(name), scale_kernel());
    Array x(F32, {4}), y(F32, {4});
    const Memory from = x.view(), to = y.view();
    const Memory* tensors[] = {&from, &to};
    const Scalar factor = f32(1);
    CHECK_THAT(error_of([&] {
                 scale({.tensors = tensors, .params = {&factor, 1}}, &stream);
               }),
               Contains("scale: stream: expected null on") && Contains(", got 0x"));
  }
}

TEST_CASE("function: a released handle says so, whatever is asked") {
  FreshCache cache;
  Function moved_from = compile(device("host"), scale_kernel());
  const Function kept = std::move(moved_from);
  CHECK(scales(kept, 10, 0));
  for (const Function& released : {Function(), moved_from}) {
    const auto refused = [](const auto& action) {
      CHECK_THAT(error_of([&] { action(); }), StartsWith("a released handle was used"));
    };
    refused([&] { released(CallArguments{}, nullptr); });
    refused([&] { released(Arguments()); });
    refused([&] { released.signature(); });
    refused([&] { released.device(); });
    refused([&] { released.workspace_bytes({}); });
    refused([&] { released.tile(); });
    refused([&] { released.ir("simplify"); });
    refused([&] { released.llvm(); });
    refused([&] { released.ptx(); });
    refused([&] { released.assembly(); });
    refused([&] { released.explain(); });
  }
}

TEST_CASE("function: its texts") {
  FreshCache cache;
  const Function host = compile(device("host"), scale_kernel());
  CHECK_THAT(host.tile(), Contains("kernel @scale"));
  CHECK_THAT(host.ir("simplify"), Contains("kernel @scale"));
  CHECK_THAT(host.llvm(), Contains("define") && Contains("scale"));
  CHECK_THAT(host.assembly(), Contains("scale") && Contains("ret"));
  CHECK_THAT(error_of([&] { host.ptx(); }),
             Contains("scale: there is no PTX of a kernel for host"));
  CHECK_THAT(error_of([&] { host.explain(); }), Contains("scale: there is no explanation"));
  CHECK_THAT(error_of([&] { host.ir("wings"); }), Contains("the pipeline has no pass 'wings'") &&
                                                      Contains("one of") && Contains("simplify"));

  const Function gpu = compile(device("emulator:sm_90"), scale_kernel());
  CHECK_THAT(gpu.ptx(), Contains(".target sm_90") && Contains(".entry scale"));
  CHECK_THAT(gpu.llvm(), Contains("nvptx64"));
  CHECK_THAT(gpu.ir("infer-layouts"), Contains("layout = "));
  CHECK_THAT(gpu.explain(), Contains("kernel scale for sm_90") && Contains("launch scale") &&
                                Contains("warps") && Contains("memory"));
  CHECK_THAT(error_of([&] { gpu.assembly(); }), Contains("scale: there is no assembly"));

  const Function interpreted = compile(device("interpreter"), scale_kernel());
  CHECK(interpreted.tile() == host.tile());
  CHECK_THAT(error_of([&] { interpreted.ir("simplify"); }), Contains("no pass runs on it"));
  CHECK_THAT(error_of([&] { interpreted.llvm(); }), Contains("there is no LLVM IR"));
}

TEST_CASE("function: what KILN_WITHOUT leaves out does not run, and is said") {
  FreshCache cache;
  EnvironmentGuard without("KILN_WITHOUT", "hoist_invariants");
  const Function host = compile(device("host"), scale_kernel());
  CHECK_THAT(error_of([&] { host.ir("hoist_invariants"); }),
             Contains("pass 'hoist_invariants' does not run on kernel 'scale', it is left out"));
}

TEST_CASE("function: 8 threads compile and launch 20 kernels", "[threads]") {
  FreshCache cache;
  const int64_t before = compile_stats().compilations;
  std::atomic<int> right = 0;
  std::array<Function, kKernels> shared;  // by position, each made by the main thread
  for (int i = 0; i < kKernels / 2; ++i)
    shared[static_cast<size_t>(i)] = compile(device("host"), scale_kernel(i));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kKernels; ++i) {
        const int bias = (i + 3 * t) % kKernels;  // each thread in an order of its own
        const Function own = compile(device("host"), scale_kernel(bias));
        right += scales(own, 100 + 64 * t + i, bias);
        if (bias < kKernels / 2) right += scales(shared[static_cast<size_t>(bias)], 70 + i, bias);
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == kThreads * (kKernels + kKernels / 2));
  CHECK(compile_stats().compilations - before == kKernels);
}
