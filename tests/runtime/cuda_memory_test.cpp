// Memory of a GPU, whose a pointer is, and events.
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

#include "ir/error.h"
#include "runtime/cuda_event.h"
#include "runtime/cuda_memory.h"
#include "tests/runtime/cuda_support.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using cuda::Result;

TEST_CASE("cuda: memory is taken, copied, filled and given back") {
  FakeCuda& fake = fake_cuda();
  const cuda::Context& context = cuda::context(0);
  const size_t before = fake.blocks.size();
  std::vector<int> from(1000), to(1000);
  std::iota(from.begin(), from.end(), 1);
  const size_t bytes = from.size() * sizeof(int);
  void* a = cuda::allocate(context, bytes);
  void* b = cuda::allocate(context, bytes);
  CHECK(fake.blocks.size() == before + 2);
  cuda::upload(context, a, from.data(), bytes);
  CHECK(fake.calls("cuStreamSynchronize") == 1);
  cuda::fill(context, b, std::byte{0x11}, bytes, nullptr);
  cuda::copy(context, b, a, bytes / 2, nullptr);
  CHECK(fake.calls("cuStreamSynchronize") == 1);
  cuda::download(context, to.data(), b, bytes);
  CHECK(fake.calls("cuStreamSynchronize") == 2);
  for (size_t i = 0; i < to.size(); ++i) REQUIRE(to[i] == (i < 500 ? from[i] : 0x11111111));
  cuda::release(context, a);
  cuda::release(context, b);
  CHECK(fake.blocks.size() == before);
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: no bytes and null are no errors") {
  FakeCuda& fake = fake_cuda();
  const cuda::Context& context = cuda::context(0);
  void* empty = cuda::allocate(context, 0);
  CHECK(empty != nullptr);
  cuda::release(context, empty);
  fake.forget();
  cuda::release(context, nullptr);
  cuda::upload(context, nullptr, nullptr, 0);
  cuda::download(context, nullptr, nullptr, 0);
  cuda::copy(context, nullptr, nullptr, 0, nullptr);
  cuda::fill(context, nullptr, std::byte{1}, 0, nullptr);
  CHECK(fake.all_calls() == 0);
}

TEST_CASE("cuda: out of memory says what was asked for, what is free, what there is") {
  FakeCuda& fake = fake_cuda();
  const cuda::Context& context = cuda::context(0);
  CHECK(cuda::memory_info(context).free == size_t{3} << 30);
  CHECK(cuda::memory_info(context).total == size_t{1} << 37);
  const auto ask = [&] { cuda::allocate(context, size_t{5} << 40); };
  const std::string text = device_error_of(ask);
  CHECK_THAT(text, Contains("out of device memory on device 0 (Fake H200): asked for 5120.00 GiB, "
                            "free 3.00 GiB of 128.00 GiB (CUDA_ERROR_OUT_OF_MEMORY)"));
  CHECK_THAT(text, Contains("try: free memory on the device"));
  fake.fail("cuMemGetInfo_v2", Result::Unknown);
  CHECK_THAT(device_error_of(ask), Contains("the driver does not say how much is free"));
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: copies with wrong addresses name them") {
  fake_cuda();
  const cuda::Context& context = cuda::context(0);
  int host[4] = {}, other[4] = {};
  CHECK_THAT(device_error_of([&] { cuda::upload(context, other, host, 16); }),
             Contains("while copying to the device (CUDA_ERROR_INVALID_VALUE)") &&
                 Contains("16 bytes from 0x"));
  CHECK_THAT(device_error_of([&] { cuda::download(context, host, other, 16); }),
             Contains("while copying from the device"));
  CHECK_THAT(device_error_of([&] { cuda::copy(context, host, other, 16, nullptr); }),
             Contains("while copying on the device"));
  CHECK_THAT(device_error_of([&] { cuda::fill(context, host, std::byte{0}, 16, nullptr); }),
             Contains("while filling device memory"));
  CHECK_THAT(device_error_of([&] { cuda::release(context, host); }),
             Contains("while releasing device memory"));
}

TEST_CASE("cuda: whose a pointer is") {
  FakeCuda& fake = fake_cuda();
  using Kind = cuda::PointerInfo::Kind;
  const cuda::Context& zero = cuda::context(0);
  const cuda::Context& one = cuda::context(1);
  char* mine = static_cast<char*>(cuda::allocate(zero, 5 << 20));
  char* theirs = static_cast<char*>(cuda::allocate(one, 100));
  std::vector<char> host(100), pinned(100);
  fake.blocks[reinterpret_cast<uint64_t>(pinned.data())] = {100, 0, true};

  CHECK(cuda::pointer_info(zero, mine + 77).kind == Kind::Device);
  CHECK(cuda::pointer_info(zero, mine + 77).ordinal == 0);
  CHECK(cuda::pointer_info(zero, theirs).ordinal == 1);
  CHECK(cuda::pointer_info(zero, host.data()).kind == Kind::Host);
  CHECK(cuda::pointer_info(zero, nullptr).kind == Kind::Host);
  CHECK(cuda::pointer_info(zero, pinned.data()).kind == Kind::Pinned);

  cuda::PointerCheck check(zero);
  for (int round = 0; round < 2; ++round) {
    for (int page : {0, 1, 2}) CHECK_NOTHROW(check(mine + (page << 21), "q"));
    CHECK_THAT(error_of([&] { check(host.data(), "attend: q"); }),
               Contains("attend: q: expected memory of device 0 (Fake H200), got host memory "
                        "(address 0x") &&
                   Contains("| copy the tensor to the device first"));
    CHECK_THAT(error_of([&] { check(pinned.data(), "k"); }), Contains("got pinned host memory"));
    CHECK_THAT(error_of([&] { check(theirs, "k"); }),
               Contains("got memory of device 1") && Contains("run on the device where it is"));
    CHECK_THAT(error_of([&] { check(nullptr, "k"); }), Contains("got host memory"));
  }
  fake.forget();
  check(mine, "q");
  CHECK(fake.all_calls() == 0);
  check.forget();
  check(mine, "q");
  CHECK(fake.calls("cuPointerGetAttributes") == 1);

  fake.fail("cuPointerGetAttributes", Result::InvalidValue);  // as older drivers say "host"
  CHECK(cuda::pointer_info(zero, host.data()).kind == Kind::Host);
  fake.fail("cuPointerGetAttributes", Result::Unknown);
  CHECK_THAT(device_error_of([&] { cuda::pointer_info(zero, host.data()); }),
             Contains("asking whose memory a pointer is"));

  fake.forget();
  fake.blocks.erase(reinterpret_cast<uint64_t>(pinned.data()));
  cuda::release(zero, mine);
  cuda::release(one, theirs);
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: events measure and are destroyed") {
  FakeCuda& fake = fake_cuda();
  const int64_t before = fake.events;
  {
    cuda::Event start(cuda::context(0)), stop(cuda::context(0));
    start.record(nullptr);
    stop.record(nullptr);
    CHECK(cuda::elapsed_ms(start, stop) >= 0);
    CHECK(fake.calls("cuEventSynchronize") == 1);
    fake.fail("cuEventElapsedTime", Result::InvalidHandle);
    CHECK_THAT(device_error_of([&] { cuda::elapsed_ms(start, stop); }),
               Contains("measuring the time between events"));
  }
  CHECK(fake.events == before);
  fake.fail("cuEventCreate", Result::OutOfMemory);
  CHECK_THAT(device_error_of([] { cuda::Event event(cuda::context(0)); }),
             Contains("creating an event"));
  CHECK(fake.stack().empty());
}
