// Calls of kernels on a GPU: arguments, streams, workspaces, and that a hot call costs little.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <limits>
#include <thread>

#include "ir/error.h"
#include "ir/parse.h"
#include "runtime/cuda_device.h"
#include "tests/runtime/gpu_support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using cuda::Result;

namespace {

std::shared_ptr<const CudaExecutable> on_gpu(const Kernel& kernel, const char* name = "cuda") {
  return cuda_executable(compile(device(name), kernel));
}

Scalar f32(double value) {
  return Scalar::of_float(F32, value);
}

// The 64-bit parameters of a launch.
std::vector<uint64_t> params_of(const FakeCuda::Launch& launch) {
  std::vector<uint64_t> params(launch.param_bytes / 8);
  std::memcpy(params.data(), launch.params.data(), launch.param_bytes);
  return params;
}

uint64_t address(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

// What the device is known to own is remembered by pages of 2 MiB: an address that is to be told
// apart must lie in a page of its own.
constexpr int64_t kPage = 2 << 20;

struct HostPage {
  std::vector<char> bytes = std::vector<char>(2 * kPage);
  void* data() {
    return reinterpret_cast<void*>((address(bytes.data()) + kPage - 1) & ~uint64_t{kPage - 1});
  }
};

// Calls scale by position; the error, if any.
std::string scale_error(const CudaExecutable& scale, const Memory& x, const Memory& y) {
  const Memory* tensors[] = {&x, &y};
  const Scalar factor = f32(2);
  return error_of([&] { scale.launch({.tensors = tensors, .params = {&factor, 1}}, nullptr); });
}

}  // namespace

TEST_CASE("cuda call: by position, on the caller's stream, without waiting") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto scale = on_gpu(scale_kernel());
  CHECK(scale->plan().free_dims().empty());
  OnDevice x(device("cuda"), iota(100)), y(device("cuda"), F32, {100});
  const Memory* tensors[] = {&x.memory(), &y.memory()};
  const Scalar factor = f32(5);
  int stream;
  fake.forget();
  scale->launch({.tensors = tensors, .params = {&factor, 1}}, &stream);
  CHECK(fake.last_launch.stream == &stream);
  CHECK(fake.calls("cuStreamSynchronize") + fake.calls("cuCtxSynchronize") == 0);
  CHECK(y.values()[99] == 495);
}

TEST_CASE("cuda call: a stale dim, stride or param is never passed") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  // Everything that a slot can be, and a grid and an extent that are computed.
  const auto kernel = on_gpu(attention_like_kernel());
  REQUIRE(kernel->plan().free_dims() == std::vector<std::string>{"limit"});
  for (int64_t heads : {3, 1, 7})
    for (int64_t seq : {65, 64, 1}) {
      OnDevice q(device("cuda"), F16, {heads, seq, 64}), k(device("cuda"), F16, {heads, seq, 64});
      OnDevice mask(device("cuda"), Bool, {heads, (seq + 63) / 64});
      OnDevice o(device("cuda"), F16, {heads, seq, 64});
      const Memory* tensors[] = {&q.memory(), &k.memory(), &mask.memory(), &o.memory()};
      std::vector<const Memory*> ordered;
      for (const TensorInfo& tensor : kernel->plan().signature().tensors())
        ordered.push_back(tensors[std::string_view("qkmo").find(tensor.name[0])]);
      std::vector<Scalar> params;
      for (const ParamInfo& param : kernel->plan().signature().params())
        params.push_back(param.dtype == F32 ? f32(0.5) : Scalar::of_int(I32, -3));
      const int64_t limit = heads + seq;
      kernel->launch({ordered, params, {&limit, 1}}, nullptr);
      CHECK(fake.last_launch.grid == std::array{static_cast<unsigned>(heads), 1u, 1u});
      const std::vector<uint64_t> passed = params_of(fake.last_launch);
      const GpuLaunch& launch = kernel->code().launches[0];
      REQUIRE(passed.size() == launch.slots.size());
      for (size_t i = 0; i < passed.size(); ++i) {
        const Slot& slot = launch.slots[i];
        INFO(slot.name << " " << slot.axis);
        const std::map<std::string, std::vector<uint64_t>> expected = {
            {"q", {address(q.memory().data), static_cast<uint64_t>(seq * 64), 64}},
            {"k", {address(k.memory().data), static_cast<uint64_t>(seq * 64), 64}},
            {"o", {address(o.memory().data), static_cast<uint64_t>(seq * 64), 64}},
            {"mask", {address(mask.memory().data), static_cast<uint64_t>((seq + 63) / 64)}},
            {"heads", {static_cast<uint64_t>(heads)}},
            {"seq", {static_cast<uint64_t>(seq)}},
            {"limit", {static_cast<uint64_t>(limit)}},
            {"scale", {0x3f000000}},
            {"first", {0xfffffffd}}};
        const size_t which =
            slot.kind == Slot::Kind::Stride ? 1 + static_cast<size_t>(slot.axis) : 0;
        CHECK(passed[i] == expected.at(slot.name).at(which));
      }
    }
}

TEST_CASE("cuda call: what is wrong with an argument is said, with kernel and name") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto scale = on_gpu(scale_kernel());
  Device& gpu = device("cuda");
  OnDevice x(gpu, iota(100)), y(gpu, F32, {100});
  OnDevice there(device("cuda:1"), U8, {2 * kPage});
  Memory elsewhere = x.memory();
  elsewhere.data = there.at(kPage).data;
  HostPage host;
  fake.forget();

  const auto with = [&](auto change) {
    Memory changed = x.memory();
    change(changed);
    return scale_error(*scale, changed, y.memory());
  };
  CHECK_THAT(with([&](Memory& m) { m.data = host.data(); }),
             Contains("scale: x: expected memory of device 0 (Fake H200), got host memory") &&
                 Contains("| copy the tensor to the device first"));
  CHECK_THAT(with([&](Memory& m) { m.data = elsewhere.data; }),
             Contains("scale: x: expected memory of device 0 (Fake H200), got memory of device 1"));
  CHECK_THAT(scale_error(*scale, x.memory(), elsewhere), Contains("scale: y: expected"));
  CHECK_THAT(
      with([&](Memory& m) { m.data = x.at(2).data; }),
      Contains("scale: x: expected an address that is a multiple of 4, the size of f32, got"));
  CHECK_THAT(with([](Memory& m) { m.data = nullptr; }),
             Contains("scale: x: expected f32 [n], got a null address"));
  CHECK_THAT(with([](Memory& m) { m.strides = {2}; }),
             Contains("scale: x: expected stride 1 on the last axis, got strides [2]"));
  CHECK_THAT(with([](Memory& m) { m.strides = {}; }),
             Contains("scale: x: expected 1 strides, got []"));
  CHECK_THAT(with([](Memory& m) { m.dtype = F16; }),
             Contains("scale: x: expected f32 [n], got f16 [100]"));
  CHECK_THAT(with([](Memory& m) { m.shape = {99}; }),
             Contains("scale: y: expected f32 [n], got f32 [100]: n is 99 in x"));
  CHECK_THAT(with([](Memory& m) { m.shape = {-1}; }), Contains("axis 0 is negative"));
  CHECK_THAT(with([](Memory& m) {
               m.shape = {10, 10};
               m.strides = {10, 1};
             }),
             Contains("scale: x: expected f32 [n], got f32 [10, 10]"));

  const Memory* tensors[] = {&x.memory(), nullptr, &y.memory()};
  const Scalar factor = f32(2), wrong = Scalar::of_float(F64, 2);
  const auto call = [&](std::span<const Memory* const> t, std::span<const Scalar> p,
                        std::span<const int64_t> d = {}) {
    return error_of([&] { scale->launch({t, p, d}, nullptr); });
  };
  const std::span all(tensors);
  CHECK_THAT(call(all.first(2), {&factor, 1}), Contains("scale: missing y"));
  CHECK_THAT(call(all.first(1), {&factor, 1}), Contains("scale: expected 2 tensors, got 1"));
  CHECK_THAT(call(all, {&factor, 1}), Contains("scale: expected 2 tensors, got 3"));
  tensors[1] = &y.memory();
  CHECK_THAT(call(all.first(2), {}), Contains("scale: expected 1 params, got 0"));
  CHECK_THAT(call(all.first(2), {&wrong, 1}), Contains("scale: factor: expected f32, got f64"));
  const int64_t dim = 100;
  CHECK_THAT(call(all.first(2), {&factor, 1}, {&dim, 1}),
             Contains("scale: expected 0 dims, got 1"));
  CHECK_THAT(error_of([&] { scale->launch(Bindings{}, nullptr); }), Contains("scale: missing x"));
  CHECK(fake.calls("cuLaunchKernel") == 0);
  CHECK(call(all.first(2), {&factor, 1}) == "no error");
}

TEST_CASE("cuda call: by name the same errors name kernel and argument") {
  fake_cuda();
  FreshCache cache;
  HostPage page;
  const Memory host = Memory::contiguous(page.data(), F32, {10});
  OnDevice y(device("cuda"), F32, {10});
  CHECK_THAT(error_of([&] {
               run(device("cuda"), scale_kernel(),
                   Arguments().tensor("x", host).tensor("y", y.memory()).param("factor", 1));
             }),
             Contains("scale: x: expected memory of device 0"));
  CHECK_THAT(error_of([&] {
               run(device("cuda"), scale_kernel(),
                   Arguments().tensor("y", y.memory()).param("factor", 1));
             }),
             Contains("scale: missing x"));
}

TEST_CASE("cuda call: empty tensors run nothing, wherever they are") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto scale = on_gpu(scale_kernel());
  const Memory nothing = Memory::contiguous(nullptr, F32, {0});
  fake.forget();
  CHECK(scale_error(*scale, nothing, nothing) == "no error");
  CHECK(fake.calls("cuLaunchKernel") == 0);
  CHECK(fake.calls("cuPointerGetAttributes") == 0);
}

TEST_CASE("cuda call: a grid that a GPU does not take is refused by name, axis and line") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto grid = on_gpu(grid_kernel());
  OnDevice out(device("cuda"), I32, {2, 2, 2});
  Memory large = out.memory();
  const Memory* tensors[] = {&large};
  const auto with = [&](Shape shape) {
    large = Memory::contiguous(large.data, I32, std::move(shape));
    return error_of([&] { grid->launch({.tensors = tensors}, nullptr); });
  };
  fake.forget();
  CHECK_THAT(with({1, 65536, 1}), Contains("grid: launch: expected at most 65535 blocks on axis 1 "
                                           "on a GPU, got 65536") &&
                                      Contains("| put the largest extent of the launch first"));
  CHECK_THAT(with({70000, 1, 1}), Contains("on axis 2 on a GPU, got 70000"));
  CHECK(fake.calls("cuLaunchKernel") == 0);
  CHECK(with({1, 65535, 1}) == "no error");
  CHECK(fake.last_launch.grid == std::array{1u, 65535u, 1u});
  CHECK(with({1, 1, 1 << 30}) == "no error");
}

TEST_CASE("cuda call: the stream's workspace") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto two = on_gpu(two_launch_kernel());
  Device& gpu = device("cuda");
  int streams[3];
  const auto call = [&](int64_t n, Stream stream, const Workspace& workspace = {}) {
    OnDevice x(gpu, F32, {2 * n}), y(gpu, F32, {n});
    const Memory* tensors[] = {&x.memory(), &y.memory()};
    const CallArguments arguments{.tensors = tensors};
    CHECK(two->workspace_bytes(arguments) == (static_cast<uint64_t>(8 * n) + 255) / 256 * 256);
    two->launch(arguments, stream, workspace);
    const std::vector<uint64_t> before = params_of(fake.launch_before);
    const std::vector<uint64_t> last = params_of(fake.last_launch);
    // Slots: n, then x or y, then w — in the order of the kernel, y before w.
    CHECK(before.at(1) == address(x.memory().data));
    CHECK(last.at(1) == address(y.memory().data));
    CHECK(before.at(2) == last.at(2));
    CHECK(fake.last_launch.stream == stream);
    return before.at(2);
  };
  const uint64_t first = call(100, &streams[0]), other = call(100, &streams[1]);
  CHECK(first != other);
  fake.forget();
  CHECK(call(100, &streams[0]) == first);
  CHECK(call(10, &streams[0]) == first);
  CHECK(fake.calls("cuMemAlloc_v2") == 2 * 2);  // of x and y alone
  CHECK(fake.calls("cuStreamSynchronize") == 0);
  const uint64_t grown = call(100000, &streams[0]);  // waits before it gives the old one back
  CHECK(fake.calls("cuStreamSynchronize") == 1);
  CHECK(call(10, &streams[0]) == grown);
  CHECK(call(100, &streams[1]) == other);

  OnDevice own(gpu, F32, {1000});
  const Workspace given = {own.memory().data, 4000};
  CHECK(call(100, &streams[2], given) == address(own.memory().data));
  OnDevice x2(gpu, F32, {2}), y1(gpu, F32, {1});
  const Memory* tensors[] = {&x2.memory(), &y1.memory()};
  const auto error_with = [&](const Workspace& workspace, Stream stream) {
    return error_of([&] { two->launch({.tensors = tensors}, stream, workspace); });
  };
  CHECK_THAT(
      error_with({own.at(4).data, 3996}, nullptr),
      Contains("two_launches: workspace: expected an address that is a multiple of 256, got"));
  CHECK_THAT(
      error_with({nullptr, 256}, nullptr),
      Contains("two_launches: workspace: expected 256 bytes of the device's memory, got a null"));
  CHECK_THAT(error_with({own.memory().data, 255}, nullptr),
             Contains("two_launches: workspace: expected at least 256 bytes, got 255"));
  HostPage host;
  CHECK_THAT(
      error_with({host.data(), 256}, nullptr),
      Contains("two_launches: workspace: expected memory of device 0 (Fake H200), got host"));

  // What is captured gets memory of the graph's own, which is given back behind the last launch.
  fake.captured = &streams[0];
  fake.forget();
  CHECK(error_with({}, &streams[0]) == "no error");
  CHECK(fake.calls("cuMemAllocAsync") == 1);
  CHECK(fake.calls("cuMemFreeAsync") == 1);
  CHECK(error_with(given, &streams[0]) == "no error");
  CHECK(error_with({}, &streams[1]) == "no error");
  CHECK(fake.calls("cuMemAllocAsync") == 1);
  fake.fail("cuMemAllocAsync", Result::NotSupported);
  CHECK_THAT(device_error_of([&] { error_with({}, &streams[0]); }),
             Contains("two_launches: allocating a workspace in the graph") &&
                 Contains("allocate workspace_bytes (256 here)"));
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda call: threads on one stream keep their launches together") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto two = on_gpu(two_launch_kernel());
  OnDevice x(device("cuda"), F32, {200}), y(device("cuda"), F32, {100});
  std::atomic<int> failed = 0;
  fake.history = std::vector<std::string>();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const Memory* tensors[] = {&x.memory(), &y.memory()};
      try {
        for (int i = 0; i < 200; ++i) two->launch({.tensors = tensors}, nullptr);
      } catch (const Error&) {
        ++failed;
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(failed == 0);
  REQUIRE(fake.history->size() == 2 * 4 * 200);
  for (size_t i = 0; i < fake.history->size(); ++i)
    REQUIRE(fake.history->at(i) == (i % 2 == 0 ? "two_launches_0" : "two_launches_1"));
}

TEST_CASE("cuda call: a fault is reported with the kernel's name by run, not by launch") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto scale = on_gpu(scale_kernel());
  OnDevice x(device("cuda"), iota(1000)), y(device("cuda"), F32, {1000});
  Memory beyond = y.memory();
  beyond.data = y.at(400).data;  // the check of pointers sees the first element only
  CHECK(scale_error(*scale, x.memory(), beyond) == "no error");
  CHECK_THAT(device_error_of([&] { device("cuda").synchronize(); }),
             Contains("last kernel launched: 'scale'"));
  fake.pending = Result::Success;
  CHECK_THAT(device_error_of([&] {
               run(device("cuda"), scale_kernel(),
                   Arguments().tensor("x", x.memory()).tensor("y", beyond).param("factor", 1));
             }),
             Contains("a kernel read or wrote memory that is not there") &&
                 Contains("last kernel launched: 'scale'"));
  fake.pending = Result::Success;
}

TEST_CASE("cuda call: a hot call is one query and one launch; nothing is allocated") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const auto scale = on_gpu(scale_kernel());
  OnDevice x(device("cuda"), iota(64)), y(device("cuda"), F32, {64});
  Memory from = x.memory(), to = y.memory();
  const Memory* tensors[] = {&from, &to};
  Scalar factor = f32(1);
  const CallArguments arguments{.tensors = tensors, .params = {&factor, 1}};
  constexpr int kLaunches = 10000;
  const auto launch_all = [&] {
    for (int i = 0; i < kLaunches; ++i) {
      from.shape[0] = to.shape[0] = i % 60;
      from.data = static_cast<float*>(x.memory().data) + i % 4;
      factor.f = i;
      scale->launch(arguments, nullptr);
    }
  };
  launch_all();
  fake.stack() = {scale->context().handle()};
  fake.forget();
  const int64_t before = allocations();
  const auto start = std::chrono::steady_clock::now();
  launch_all();
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - start;
  CHECK(allocations() == before);
  const int64_t launched = kLaunches - (kLaunches + 59) / 60;  // those of no elements run nothing
  CHECK(fake.calls("cuLaunchKernel") == launched);
  CHECK(fake.calls("cuCtxGetCurrent") == launched);
  CHECK(fake.all_calls() == 2 * launched);
  fake.stack().clear();
  WARN(fmt::format("a hot call takes {:.0f} ns with the fake driver (a report, no bar)",
                   time.count() / kLaunches));
}
