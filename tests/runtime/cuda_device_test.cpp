// The CUDA device: names, architectures, compilation and its caches. Against the fake driver.
#include "runtime/cuda_device.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "passes/pipeline.h"
#include "runtime/cache.h"
#include "runtime/compile.h"
#include "runtime/gpu_artifact.h"
#include "runtime/gpu_code.h"
#include "tests/runtime/gpu_support.h"
#include "tests/support/late_file.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using cuda::Result;
namespace fs = std::filesystem;

namespace {

std::vector<fs::path> entries(const FreshCache& cache) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(cache.path())) files.push_back(file.path());
  return files;
}

struct Counts {
  int64_t compilations, disk_loads;
  bool operator==(const Counts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Counts& counts) {
  return out << counts.compilations << " compilations, " << counts.disk_loads << " disk loads";
}
class Counter {
 public:
  Counts since() const {
    const CompileStats now = compile_stats();
    return {now.compilations - start_.compilations, now.disk_loads - start_.disk_loads};
  }

 private:
  CompileStats start_ = compile_stats();
};

}  // namespace

TEST_CASE("cuda device: names, and what they are") {
  fake_cuda();
  CHECK(device("cuda").name() == "cuda:0");
  CHECK(&device("cuda") == &device("cuda:0"));
  CHECK(device("cuda:1").name() == "cuda:1");
  CHECK(device("cuda").target() == "sm_90");
  CHECK(device("cuda:3").target() == "sm_80");
  CHECK(device("cuda").description() ==
        "Fake H200, sm_90, 132 multiprocessors, 128.00 GiB, driver CUDA 12.4, code for sm_90");
  CHECK(usable_devices() ==
        std::vector<std::string>{"host", "interpreter", "emulator", "cuda:0", "cuda:1", "cuda:3"});
  {
    EnvironmentGuard guard("KILN_CUDA_DEVICE", "1");
    CHECK(&device("cuda") == &device("cuda:1"));
  }
  for (const char* bad : {"cuda:", "cuda:x", "cuda:1x", "cuda:-", "cuda1", "cuda: 1"})
    CHECK_THAT(error_of([&] { device(bad); }),
               Contains(fmt::format("there is no device '{}'", bad)));
  CHECK_THAT(error_of([] { device("cuda:4"); }),
             Contains("there is no CUDA device 4: expected a number from 0 to 3"));
  CHECK_THAT(error_of([] { device("cuda:-1"); }), Contains("there is no CUDA device -1"));
  CHECK_THAT(device_error_of([] { device("cuda:2"); }),
             Contains("device 2 (Fake V100) is too old: expected compute capability 8.0 or higher, "
                      "got 7.0"));
}

TEST_CASE("cuda device: the architecture can be chosen") {
  fake_cuda();
  CHECK(cuda_device(0, "sm_80").target() == "sm_80");
  CHECK(cuda_device(0, "sm_90a").target() == "sm_90a");
  CHECK(&cuda_device(0, "sm_80") != &cuda_device(0));
  CHECK(&cuda_device(0, "sm_90") == &cuda_device(0));
  {
    EnvironmentGuard guard("KILN_CUDA_ARCH", "sm_86");
    CHECK(device("cuda").target() == "sm_86");
    CHECK(cuda_device(0, "sm_80").target() == "sm_80");
  }
  CHECK_THAT(error_of([] { cuda_device(3, "sm_90"); }),
             Contains("device 3 (Fake A100) is sm_80: it cannot run code for sm_90 | sm_80"));
  CHECK_THAT(error_of([] { cuda_device(0, "sm_100"); }), Contains("cannot run code for sm_100"));
  CHECK_THAT(error_of([] { cuda_device(0, "sm_70"); }), Contains("too old"));
  EnvironmentGuard guard("KILN_CUDA_ARCH", "hopper");
  CHECK_THAT(error_of([] { device("cuda"); }), Contains("no GPU architecture is named 'hopper'"));
}

TEST_CASE("cuda device: an `a` architecture is for its own GPU only") {
  FakeCuda& fake = fake_cuda();
  fake.devices.push_back({"Fake B200", 10, 0, size_t{1} << 37});
  CHECK(cuda_device(4).target() == "sm_100");
  CHECK(cuda_device(4, "sm_90").target() == "sm_90");
  CHECK_THAT(error_of([] { cuda_device(4, "sm_90a"); }),
             Contains("is sm_100: it cannot run code for sm_90a"));
}

TEST_CASE("cuda device: a kernel that is scheduled for sm_90a has code for it") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const Kernel kernel = testing::late_kernel(KILN_TESTS_DIR, "copy_ring.tile");
  Counter counter;
  compile(device("cuda"), kernel);  // a device of sm_90, which its GPU does not mind
  CHECK_THAT(fake.loaded, Contains(".target sm_90a"));
  forget_compiled();
  compile(device("cuda"), kernel);
  CHECK(counter.since() == Counts{1, 1});
  compile(cuda_device(0, "sm_90a"), kernel);
  CHECK(counter.since() == Counts{1, 2});
  CHECK(scales(device("cuda"), 100));
  CHECK_FALSE(Contains(".target sm_90a").match(fake.loaded));
  CHECK_THAT(error_of([&] { compile(device("cuda:3"), kernel); }),
             Contains("(Fake A100) is sm_80: it cannot run code for sm_90a"));
  fake.devices.push_back({"Fake B200", 10, 0, size_t{1} << 37});
  CHECK_THAT(error_of([&] { compile(cuda_device(4), kernel); }),
             Contains("is sm_100: it cannot run code for sm_90a"));
  CHECK_THAT(error_of([&] { compile(device("emulator"), kernel); }),
             Contains("kernel 'copy_ring' is scheduled for sm_90a, the device's code is for"));
}

TEST_CASE("cuda device: limits for people") {
  fake_cuda();
  CHECK_THAT(cuda_limits(cuda::device_properties(0)),
             Contains("multiprocessors  132") && Contains("1024 a block; 2048") &&
                 Contains("48.00 KiB a block, 227.00 KiB on request") && Contains("GB/s"));
}

TEST_CASE("cuda device: a kernel runs, on each device") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  for (const char* name : {"cuda", "cuda:1", "cuda:3"})
    for (int64_t n : {0, 1, 64, 1000}) CHECK(scales(device(name), n));
  CHECK(fake.last_launch.device == 3);
  CHECK(fake.last_launch.grid == std::array{16u, 1u, 1u});
  CHECK(fake.last_launch.stream == nullptr);
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda device: code is compiled once, and another process finds it on disk") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  Counter counter;
  CHECK(scales(device("cuda"), 100));
  CHECK(scales(device("cuda"), 200));
  CHECK(counter.since() == Counts{1, 0});
  CHECK(entries(cache).size() == 1);
  const std::string loaded = fake.loaded;
  forget_compiled();
  CHECK(scales(device("cuda"), 100));
  CHECK(counter.since() == Counts{1, 1});
  CHECK(fake.loaded == loaded);
  CHECK_THAT(loaded, Contains(".target sm_90"));
  CHECK(scales(device("cuda:1"), 100));  // the same PTX, loaded in another context
  CHECK(counter.since() == Counts{1, 2});
  CHECK(scales(device("cuda:3"), 100));  // another architecture
  CHECK(counter.since() == Counts{2, 2});
  CHECK_THAT(fake.loaded, Contains(".target sm_80"));
  CHECK(entries(cache).size() == 2);
  forget_compiled();
  EnvironmentGuard off("KILN_CACHE", "off");
  CHECK(scales(device("cuda"), 100));
  CHECK(counter.since() == Counts{3, 2});
}

TEST_CASE("cuda device: a cache entry that is not what was stored is compiled again") {
  fake_cuda();
  FreshCache cache;
  CHECK(scales(device("cuda"), 100));
  const std::string good = read_file(entries(cache).at(0));
  const auto recompiles = [&] {
    forget_compiled();
    Counter counter;
    const bool right = scales(device("cuda"), 100);
    return right && counter.since() == Counts{1, 0} && read_file(entries(cache).at(0)) == good;
  };
  for (size_t byte : {size_t{0}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[byte] = static_cast<char>(bad[byte] ^ 1);
    write_file(entries(cache).at(0), bad);
    CHECK(recompiles());
  }
  write_file(entries(cache).at(0), "");
  CHECK(recompiles());

  // Sound to the cache, but not this kernel's: of another format, PTX, or interface.
  const std::string key =
      gpu_cache_key(compile(device("cuda"), scale_kernel()).signature().kernel(), "sm_90");
  GpuCode code =
      *cached_gpu_code(compile(device("cuda"), scale_kernel()).signature().kernel(), "sm_90");
  const DiskCache disk(cache.path());
  disk.store(key, "nonsense");
  CHECK(recompiles());
  GpuCode bad = code;
  bad.ptx = "not PTX";
  disk.store(key, encode(bad));
  CHECK(recompiles());
  bad = code;
  bad.launches[0].slots[0].name = "stranger";
  disk.store(key, encode(bad));
  CHECK(recompiles());
  bad = code;
  bad.launches.push_back(bad.launches[0]);
  disk.store(key, encode(bad));
  CHECK(recompiles());
  bad = code;
  bad.launches[0].entry = "absent";
  disk.store(key, encode(bad));
  CHECK(recompiles());
}

TEST_CASE("cuda device: PTX that the driver is too old for, and no driver's memory") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  fake.fail("cuModuleLoadDataEx", Result::UnsupportedPtxVersion);
  CHECK_THAT(
      device_error_of([] { scales(device("cuda"), 10); }),
      Contains("the PTX of 'scale' is newer than the driver: it is PTX 7.8, the driver (CUDA "
               "12.4) takes PTX up to 8.4"));
  fake_cuda();
  fake.free_memory = 1000;
  CHECK_THAT(device_error_of([] { device("cuda").allocate(5000); }),
             Contains("asked for 4.88 KiB, free"));
}

TEST_CASE("cuda device: local memory is a complaint, and an error if one wants") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  CHECK(scales(device("cuda"), 10));
  CHECK(compile_stats().complaint.empty());
  forget_compiled();
  fake.local_bytes = 48;
  fake.jit_log = "ptxas info    : 40 bytes spill stores";
  CHECK(scales(device("cuda"), 10));  // from the disk, and looked at again
  CHECK_THAT(compile_stats().complaint,
             Contains("kernel 'scale' keeps 48 bytes a thread in local memory") &&
                 Contains("40 bytes spill stores"));
  const auto complaint = cuda_executable(compile(device("cuda"), scale_kernel()))->complaint();
  CHECK(complaint == compile_stats().complaint);
  forget_compiled();
  {
    EnvironmentGuard strict("KILN_STRICT", "1");
    CHECK_THAT(
        device_error_of([] { scales(device("cuda"), 10); }),
        Contains("keeps 48 bytes a thread in local memory") && Contains("try: unset KILN_STRICT"));
    CHECK_THROWS_AS(scales(device("cuda"), 10), DeviceError);  // every time
  }
  CHECK(scales(device("cuda"), 10));
  forget_compiled();
  fake_cuda();
  fake.jit_log = "ptxas info    : (C7510) Potential Performance Loss: wgmma serialised";
  CHECK(scales(device("cuda"), 10));
  CHECK_THAT(compile_stats().complaint, Contains("warns of 'scale'") && Contains("C7510"));
  EnvironmentGuard strict("KILN_STRICT", "0");
  forget_compiled();
  CHECK(scales(device("cuda"), 10));
  fake_cuda();
  forget_compiled();
  CHECK(scales(device("cuda"), 10));
  CHECK(compile_stats().complaint.empty());
}

TEST_CASE("cuda device: KILN_DUMP writes every stage, LLVM IR and PTX") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  CHECK(scales(device("cuda"), 10));  // the disk cache has it
  forget_compiled();
  TemporaryDirectory directory;
  {
    EnvironmentGuard guard("KILN_DUMP", directory.path());
    CHECK(scales(device("cuda"), 10));
  }
  std::vector<fs::path> found;
  for (const auto& one : fs::directory_iterator(directory.path())) found.push_back(one.path());
  REQUIRE(found.size() == 1);
  CHECK(found[0].filename().string().starts_with("scale-"));
  CHECK(read_file(found[0] / "kernel.ptx") == fake.loaded);
  CHECK_THAT(read_file(found[0] / "kernel.ll"), Contains("define"));
  size_t stages = 0;
  for (const auto& one : fs::directory_iterator(found[0])) {
    if (one.path().extension() != ".tile") continue;
    ++stages;
    const std::string text = read_file(one.path());
    CHECK(print(parse(text)) == text);
    if (one.path().filename() != "00_traced.tile") CHECK_THAT(text, Contains("sm_90"));
  }
  CHECK(stages == 1 + pipeline_for(Tier::Sm80).size());
}

TEST_CASE("cuda device: time of launches by the device's own clock") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  Device& gpu = device("cuda");
  OnDevice x(gpu, iota(100)), y(gpu, F32, {100});
  const Function scale = compile(gpu, scale_kernel());
  const Bindings bindings =
      bind(scale.signature(),
           Arguments().tensor("x", x.memory()).tensor("y", y.memory()).param("factor", 2));
  fake.forget();
  CHECK(gpu.time_ms(*scale.executable(), bindings, 7) >= 0);
  CHECK(fake.calls("cuLaunchKernel") == 7);
  CHECK(fake.calls("cuEventRecord") == 2);
  CHECK(fake.calls("cuStreamSynchronize") + fake.calls("cuCtxSynchronize") == 0);

  Array in(F32, {100}), out(F32, {100});
  Device& host = device("host");
  const Function on_host = compile(host, scale_kernel());
  const Bindings host_bindings =
      bind(on_host.signature(), Arguments().tensor("x", in).tensor("y", out).param("factor", 2));
  CHECK(host.time_ms(*on_host.executable(), host_bindings, 3) > 0);
  CHECK_THAT(error_of([&] { gpu.time_ms(*on_host.executable(), host_bindings, 1); }),
             Contains("expected a kernel that was compiled for a cuda device"));
}

// Run by the test below, in processes of their own.
TEST_CASE("child: no device", "[.child-no-device]") {
  if (const char* version = std::getenv("KILN_TEST_DRIVER"))
    fake_cuda().driver_version = std::atoi(version);
  const std::string text = device_error_of([] { device("cuda"); });
  CHECK_THAT(text, Contains(std::getenv("KILN_TEST_EXPECTED")));
  CHECK(usable_devices() == std::vector<std::string>{"host", "interpreter", "emulator"});
}

TEST_CASE("cuda device: without a driver, or with an old one, there is none") {
  CHECK(run_children(1, "[.child-no-device]",
                     {{"KILN_LIBCUDA", "/nonexistent/libcuda.so.1"},
                      {"KILN_TEST_EXPECTED", "no CUDA driver"}}) == std::vector<int>{0});
  CHECK(run_children(1, "[.child-no-device]",
                     {{"KILN_TEST_DRIVER", "11080"},
                      {"KILN_TEST_EXPECTED", "the CUDA driver is too old"}}) ==
        std::vector<int>{0});
}
