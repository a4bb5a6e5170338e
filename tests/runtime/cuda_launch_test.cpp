// Launching: what reaches the driver, what does not, what it costs.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <limits>
#include <thread>

#include "ir/error.h"
#include "runtime/cuda_launch.h"
#include "runtime/cuda_memory.h"
#include "tests/runtime/cuda_support.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using cuda::Result;

namespace {

struct SaxpyParams {
  const void* x;
  void* y;
  float a;
  uint32_t n;
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(this, 1)); }
};

cuda::Function load(const std::string& name, int ordinal = 0, int dynamic_shared = 0) {
  return cuda::Function(cuda::load_module(cuda::context(ordinal), saxpy_ptx(), "saxpy"), name,
                        dynamic_shared);
}

// Two arrays on the device, 1, 2, … and zeros.
struct SaxpyArrays {
  const cuda::Context& context;
  uint32_t n;
  void* x;
  void* y;

  SaxpyArrays(const cuda::Context& context, uint32_t n)
      : context(context),
        n(n),
        x(cuda::allocate(context, n * sizeof(float))),
        y(cuda::allocate(context, n * sizeof(float))) {
    std::vector<float> values(n);
    for (uint32_t i = 0; i < n; ++i) values[i] = static_cast<float>(i + 1);
    cuda::upload(context, x, values.data(), n * sizeof(float));
    cuda::fill(context, y, std::byte{0}, n * sizeof(float), nullptr);
  }
  ~SaxpyArrays() {
    cuda::release(context, x);
    cuda::release(context, y);
  }
  SaxpyParams params(float a) const { return {x, y, a, n}; }
  std::vector<float> result() const {
    std::vector<float> values(n);
    cuda::download(context, values.data(), y, n * sizeof(float));
    return values;
  }
};

}  // namespace

TEST_CASE("cuda: a launch runs with its parameters, on the caller's stream") {
  FakeCuda& fake = fake_cuda();
  for (int ordinal : {0, 1}) {
    SaxpyArrays arrays(cuda::context(ordinal), 1000);
    int stream;
    cuda::launch(load("saxpy", ordinal), {.grid = {8, 1, 1}, .block = {128, 1, 1}}, &stream,
                 arrays.params(3).bytes());
    const std::vector<float> result = arrays.result();
    for (size_t i = 0; i < result.size(); ++i) REQUIRE(result[i] == 3 * static_cast<float>(i + 1));
    CHECK(fake.last_launch.stream == &stream);
    CHECK(fake.last_launch.device == ordinal);
    CHECK(fake.last_launch.param_bytes == sizeof(SaxpyParams));
  }
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: grid, block and shared memory arrive as given") {
  FakeCuda& fake = fake_cuda();
  cuda::Function empty = load("empty", 0, 100 << 10);
  cuda::launch(empty, {.grid = {0x7fffffff, 65535, 2}, .block = {32, 4, 2}}, nullptr, {});
  CHECK(fake.last_launch.function == "empty");
  CHECK(fake.last_launch.grid == std::array{0x7fffffffu, 65535u, 2u});
  CHECK(fake.last_launch.block == std::array{32u, 4u, 2u});
  CHECK(fake.last_launch.dynamic_shared == 100u << 10);
  CHECK(fake.last_launch.stream == nullptr);
  CHECK(fake.last_launch.param_bytes == 0);
}

TEST_CASE("cuda: an empty grid runs nothing, one too large is refused") {
  FakeCuda& fake = fake_cuda();
  cuda::Function empty = load("empty");
  for (std::array<int64_t, 3> grid : {std::array<int64_t, 3>{0, 1, 1}, {1, 0, 1}, {1, 1, 0}})
    cuda::launch(empty, {.grid = grid}, nullptr, {});
  for (std::array<int64_t, 3> grid : {std::array<int64_t, 3>{int64_t{1} << 31, 1, 1},
                                      {1, 65536, 1},
                                      {1, 1, 65536},
                                      {-1, 1, 1},
                                      {std::numeric_limits<int64_t>::max(), 1, 1}})
    CHECK_THAT(error_of([&] { cuda::launch(empty, {.grid = grid}, nullptr, {}); }),
               Contains(fmt::format("kernel 'empty' cannot be launched with grid {}×{}×{}", grid[0],
                                    grid[1], grid[2])) &&
                   Contains("expected at most 2147483647×65535×65535 blocks") && Contains("| "));
  CHECK(fake.calls("cuLaunchKernel") == 0);
}

TEST_CASE("cuda: a launch that the driver refuses names kernel, shape and resources") {
  FakeCuda& fake = fake_cuda();
  fake.max_threads = 256;
  fake.registers = 200;
  cuda::Function empty = load("empty", 0, 2048);
  const std::string text = device_error_of([&] {
    cuda::launch(empty, {.grid = {7, 1, 1}, .block = {512, 1, 1}}, nullptr, {});
  });
  CHECK_THAT(text, Contains("more registers or shared memory than there is while launching kernel "
                            "'empty' (CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES): device 0 (Fake H200): "
                            "grid 7×1×1, block 512×1×1, 256 threads a block at most, 200 registers "
                            "a thread, 3072 bytes of shared memory, 0 bytes of parameters"));
  CHECK_THAT(text, Contains("try: use fewer threads a block"));
  fake.fail("cuLaunchKernel", Result::InvalidHandle);
  CHECK_THAT(device_error_of([&] { cuda::launch(empty, {}, nullptr, {}); }),
             Contains("give a stream that exists, of the same device"));
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: a kernel that faults is named by whatever call sees it") {
  FakeCuda& fake = fake_cuda();
  const cuda::Context& context = cuda::context(0);
  SaxpyArrays arrays(context, 10);
  std::vector<float> host(10);
  SaxpyParams params = arrays.params(1);
  params.y = host.data();
  const auto check_text = [](const std::string& text) {
    CHECK_THAT(text, Contains("a kernel read or wrote memory that is not there") &&
                         Contains("(CUDA_ERROR_ILLEGAL_ADDRESS)") &&
                         Contains("last kernel launched: 'saxpy'") &&
                         Contains("try: compute-sanitizer"));
  };
  cuda::Function saxpy = load("saxpy");
  cuda::launch(saxpy, {.block = {32, 1, 1}}, nullptr, params.bytes());
  check_text(device_error_of([&] { context.synchronize(nullptr); }));
  check_text(device_error_of([&] { context.synchronize(); }));
  check_text(device_error_of([&] { cuda::allocate(context, 16); }));
  check_text(device_error_of([&] { cuda::launch(saxpy, {}, nullptr, params.bytes()); }));
  fake.pending = Result::Success;
}

TEST_CASE("cuda: any thread may launch, whatever is current there") {
  FakeCuda& fake = fake_cuda();
  cuda::Function empty = load("empty", 1);
  std::thread([&] {
    fake.stack() = {fake.context_of(0)};
    cuda::launch(empty, {}, nullptr, {});
    CHECK(fake.stack() == std::vector{fake.context_of(0)});
  }).join();
  CHECK(fake.last_launch.device == 1);
}

TEST_CASE("cuda: a hot launch is one query and one launch; nothing is allocated or waited for") {
  FakeCuda& fake = fake_cuda();
  cuda::Function saxpy = load("saxpy");
  SaxpyArrays arrays(saxpy.context(), 1);
  const SaxpyParams params = arrays.params(1);
  cuda::PointerCheck check(saxpy.context());
  constexpr int kLaunches = 10000;
  const auto launch_all = [&] {
    for (int i = 0; i < kLaunches; ++i) {
      check(params.x, "x");
      check(params.y, "y");
      cuda::launch(saxpy, {.block = {32, 1, 1}}, nullptr, params.bytes());
    }
  };
  fake.stack() = {saxpy.context().handle()};
  fake.forget();
  int64_t before = allocations();
  launch_all();
  CHECK(allocations() == before);
  CHECK(fake.calls("cuLaunchKernel") == kLaunches);
  CHECK(fake.calls("cuCtxGetCurrent") == kLaunches + 2);
  CHECK(fake.calls("cuPointerGetAttributes") == 2);
  CHECK(fake.all_calls() == 2 * kLaunches + 4);

  fake.stack().clear();  // a thread where another context, or none, is current
  fake.stack().reserve(4);
  fake.forget();
  before = allocations();
  launch_all();
  CHECK(allocations() == before);
  CHECK(fake.all_calls() == 4 * kLaunches);
  CHECK(fake.calls("cuCtxPushCurrent_v2") == kLaunches);
  CHECK(fake.calls("cuCtxPopCurrent_v2") == kLaunches);
  CHECK(arrays.result()[0] == 2 * kLaunches);
}

TEST_CASE("cuda: 10,000 launches beside the driver's alone (a report, no bar)") {
  FakeCuda& fake = fake_cuda();
  cuda::Function empty = load("empty");
  std::array<std::byte, 64> params = {};
  fake.stack() = {empty.context().handle()};
  constexpr int kLaunches = 10000;
  const auto nanoseconds = [&](auto&& body) {
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 7; ++round) {
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kLaunches; ++i) body();
      const std::chrono::duration<double, std::nano> time =
          std::chrono::steady_clock::now() - start;
      best = std::min(best, time.count() / kLaunches);
    }
    return best;
  };
  const cuda::Api& api = cuda::api();
  const double bare = nanoseconds([&] {
    size_t bytes = params.size();
    void* extra[] = {cuda::kParamBufferPointer, params.data(), cuda::kParamBufferSize, &bytes,
                     cuda::kParamEnd};
    api.launch_kernel(empty.handle(), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra);
  });
  const double ours = nanoseconds([&] { cuda::launch(empty, {}, nullptr, params); });
  fake.stack().clear();
  WARN(
      fmt::format("fake cuLaunchKernel {:.1f} ns, cuda::launch {:.1f} ns: {:.1f} ns more, ratio "
                  "{:.2f}",
                  bare, ours, ours - bare, ours / bare));
  CHECK(fake.calls("cuLaunchKernel") == 2 * 7 * kLaunches);
}
