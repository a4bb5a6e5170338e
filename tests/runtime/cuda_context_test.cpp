// Devices, and living beside other users of CUDA in one process.
#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "ir/error.h"
#include "runtime/cuda_context.h"
#include "tests/runtime/cuda_support.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using cuda::Result;

TEST_CASE("cuda: devices are listed with their properties") {
  fake_cuda();
  REQUIRE(cuda::device_count() == 4);
  const cuda::DeviceProperties h200 = cuda::device_properties(0);
  CHECK(h200.text() == "Fake H200, sm_90, 132 multiprocessors, 128.00 GiB");
  CHECK(h200.usable());
  CHECK(h200.shared_per_block == 48 << 10);
  CHECK(h200.shared_per_block_optin == 227 << 10);
  CHECK(h200.shared_per_multiprocessor == 228 << 10);
  CHECK(h200.max_threads_per_multiprocessor == 2048);
  // The fake answers 1000 + the attribute's number.
  CHECK(h200.registers_per_block == 1012);
  CHECK(h200.clock_kilohertz == 1013);
  CHECK(h200.memory_clock_kilohertz == 1036);
  CHECK(h200.memory_bus_bits == 1037);
  CHECK(h200.l2_bytes == 1038);
  CHECK(h200.registers_per_multiprocessor == 1082);
  CHECK(h200.max_blocks_per_multiprocessor == 1106);
  CHECK(h200.shared_reserved_per_block == 1111);
  CHECK_FALSE(cuda::device_properties(2).usable());
  CHECK(cuda::device_properties(3).capability() == 80);
}

TEST_CASE("cuda: a device that is not there, or too old") {
  FakeCuda& fake = fake_cuda();
  CHECK_THAT(error_of([] { cuda::context(4); }),
             Contains("there is no CUDA device 4: expected a number from 0 to 3"));
  CHECK_THAT(error_of([] { cuda::device_properties(-1); }), Contains("no CUDA device -1"));
  const std::string text = device_error_of([] { cuda::context(2); });
  CHECK_THAT(text, Contains("device 2 (Fake V100) is too old: expected compute capability 8.0 or "
                            "higher, got 7.0"));
  CHECK_THAT(text, Contains("try: "));
  fake.devices.clear();
  CHECK_THAT(error_of([] { cuda::device_properties(0); }), Contains("this process sees none"));
}

TEST_CASE("cuda: KILN_CUDA_DEVICE chooses the device") {
  fake_cuda();
  CHECK(cuda::default_ordinal() == 0);
  {
    EnvironmentGuard guard("KILN_CUDA_DEVICE", "3");
    CHECK(cuda::default_ordinal() == 3);
  }
  for (std::string wrong : {"4", "x", "-1"}) {
    EnvironmentGuard guard("KILN_CUDA_DEVICE", wrong);
    CHECK_THAT(error_of([] { cuda::default_ordinal(); }), Contains("KILN_CUDA_DEVICE"));
  }
}

TEST_CASE("cuda: a context that cannot be retained is tried again") {
  FakeCuda& fake = fake_cuda();
  fake.fail("cuDevicePrimaryCtxRetain", Result::OutOfMemory);
  if (!fake.retained.contains(1))
    CHECK_THAT(device_error_of([] { cuda::context(1); }),
               Contains("out of device memory while retaining the primary context"));
  fake_cuda();
  CHECK(cuda::context(1).text() == "device 1 (Fake H200)");
}

TEST_CASE("cuda: threads that ask for one context get one") {
  FakeCuda& fake = fake_cuda();
  std::vector<const cuda::Context*> seen(8);
  std::vector<std::thread> threads;
  for (auto& slot : seen) threads.emplace_back([&slot] { slot = &cuda::context(3); });
  for (std::thread& thread : threads) thread.join();
  CHECK(std::set(seen.begin(), seen.end()).size() == 1);
  CHECK(fake.retained[3] == 1);
}

TEST_CASE("cuda: others' current context is put back") {
  FakeCuda& fake = fake_cuda();
  const cuda::Context& zero = cuda::context(0);
  const cuda::Context& one = cuda::context(1);
  auto& stack = fake.stack();
  for (const std::vector<cuda::CUcontext>& others :
       {std::vector<cuda::CUcontext>{}, {fake.context_of(1)}, {fake.context_of(0)}}) {
    stack = others;
    {
      cuda::Current outer(zero);
      CHECK(stack.back() == zero.handle());
      {
        cuda::Current inner(one), again(one);
        CHECK(stack.back() == one.handle());
      }
      CHECK(stack.back() == zero.handle());
    }
    CHECK(stack == others);
  }
  CHECK(fake.calls("cuCtxPushCurrent_v2") == fake.calls("cuCtxPopCurrent_v2"));
  stack.clear();
  fake.fail("cuCtxPushCurrent_v2", Result::ContextIsDestroyed);
  CHECK_THAT(device_error_of([&] { cuda::Current current(zero); }),
             Contains("making the context current") && Contains("cudaDeviceReset"));
  CHECK(fake.calls("cuCtxPushCurrent_v2") == fake.calls("cuCtxPopCurrent_v2") + 1);
}

TEST_CASE("cuda: waiting reports failures and stays balanced") {
  FakeCuda& fake = fake_cuda();
  const cuda::Context& context = cuda::context(0);
  fake.fail("cuStreamSynchronize", Result::StreamCaptureUnsupported);
  fake.fail("cuCtxSynchronize", Result::EccUncorrectable);
  CHECK_THAT(device_error_of([&] { context.synchronize(nullptr); }),
             Contains("while a stream is captured") && Contains("launches alone may be captured"));
  CHECK_THAT(device_error_of([&] { context.synchronize(); }), Contains("memory is defective"));
  CHECK(fake.stack().empty());
}
