// Opening the CUDA driver, everything that can be wrong with it, and the text of its errors.
#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "ir/error.h"
#include "runtime/compile.h"
#include "runtime/cuda_context.h"
#include "runtime/cuda_error.h"
#include "tests/runtime/cuda_support.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using cuda::Result;

TEST_CASE("cuda: no driver library") {
  const std::string text = device_error_of([] { cuda::load_api("libcuda-is-not-here.so.1"); });
  CHECK_THAT(text, Contains("no CUDA driver: libcuda-is-not-here.so.1 cannot be loaded"));
  CHECK_THAT(text, Contains("try: install an NVIDIA driver for CUDA 12.0 or newer"));
}

TEST_CASE("cuda: a library that is no driver") {
  const std::string text = device_error_of([] { cuda::load_api("libm.so.6"); });
  CHECK_THAT(text, Contains("libm.so.6 has no cuDriverGetVersion"));
  CHECK_THAT(text, Contains("try: point KILN_LIBCUDA at"));
}

TEST_CASE("cuda: a driver that is too old, or sees no device, or is new enough") {
  FakeCuda& fake = fake_cuda();
  const auto load = [] { cuda::load_api(fake_cuda_library()); };
  fake.driver_version = 11080;
  std::string text = device_error_of(load);
  CHECK_THAT(text, Contains("too old: expected CUDA 12.0 or newer") && Contains("is 11.8"));
  CHECK_THAT(text, Contains("try: update the NVIDIA driver to release 525"));
  CHECK(fake.calls("cuInit") == 0);
  fake.driver_version = 12000;
  fake.devices.clear();
  text = device_error_of(load);
  CHECK_THAT(text, Contains("there is no CUDA device while initialising the driver (CUDA 12.0)"));
  CHECK_THAT(text, Contains("CUDA_VISIBLE_DEVICES"));
  fake_cuda();
  CHECK_NOTHROW(load());
}

TEST_CASE("cuda: a driver that refuses to start says why") {
  FakeCuda& fake = fake_cuda();
  for (auto [result, expected] :
       std::map<Result, std::string>{{Result::StubLibrary, "stub"},
                                     {Result::SystemDriverMismatch, "reinstall the driver"},
                                     {Result::SystemNotReady, "nvidia-fabricmanager"},
                                     {static_cast<Result>(777), "the fake driver's own error"},
                                     {static_cast<Result>(4321), "CUDA error 4321"}}) {
    fake.fail("cuInit", result);
    CHECK_THAT(device_error_of([] { cuda::load_api(fake_cuda_library()); }), Contains(expected));
  }
}

TEST_CASE("cuda: every error of the table has its own name and a meaning") {
  std::set<std::string> names;
  int known = 0;
  for (int code = 1; code < 1000; ++code) {
    const cuda::ResultInfo info = cuda::explain(static_cast<Result>(code));
    CHECK_FALSE(info.meaning.empty());
    CHECK(names.insert(info.name).second);
    known += info.name.starts_with("CUDA_ERROR_") && code != 777;
  }
  CHECK(known == 42);
  CHECK_NOTHROW(cuda::check(Result::Success, "doing nothing"));
}

TEST_CASE("cuda: sizes are readable") {
  CHECK(cuda::size_text(0) == "0 bytes");
  CHECK(cuda::size_text(1023) == "1023 bytes");
  CHECK(cuda::size_text(1536) == "1.50 KiB");
  CHECK(cuda::size_text(uint64_t{141} << 30) == "141.00 GiB");
  CHECK(cuda::size_text(uint64_t{5} << 40) == "5120.00 GiB");
}

TEST_CASE("child of cuda: the host device does not open the driver", "[.]") {
  FreshCache cache;
  Array x(F32, {64}), y(F32, {64});
  run(device("host"), scale_kernel(), Arguments().tensor("x", x).tensor("y", y).param("factor", 2));
  const auto loaded = [] {
    std::ifstream maps("/proc/self/maps");
    const std::string text(std::istreambuf_iterator<char>(maps), {});
    return text.find("kiln_fake_cuda") != std::string::npos;
  };
  CHECK_FALSE(loaded());
  CHECK(cuda::device_count() == 4);
  CHECK(loaded());
}

TEST_CASE("child of cuda: a failure to open is tried again", "[.]") {
  CHECK_THAT(device_error_of([] { cuda::device_count(); }), Contains("no CUDA driver: nowhere.so"));
  EnvironmentGuard guard("KILN_LIBCUDA", fake_cuda_library());
  CHECK(cuda::device_count() == 4);
}

TEST_CASE("cuda: the driver is opened when first needed, where KILN_LIBCUDA says") {
  CHECK(run_children(1, "child of cuda: the host device does not open the driver",
                     {{"KILN_LIBCUDA", fake_cuda_library()}}) == std::vector{0});
  CHECK(run_children(1, "child of cuda: a failure to open is tried again",
                     {{"KILN_LIBCUDA", "nowhere.so"}}) == std::vector{0});
}
