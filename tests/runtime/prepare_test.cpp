// What prepare() stores is what compiling looks for, on the host and on GPUs that are not here.
#include "runtime/prepare.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/error.h"
#include "runtime/compile.h"
#include "runtime/cuda_device.h"
#include "tests/runtime/gpu_support.h"
#include "tests/support/late_file.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

// How compile() came to the code.
std::string origin(Device& device, const Kernel& kernel) {
  forget_compiled();
  const CompileStats before = compile_stats();
  compile(device, kernel);
  const CompileStats after = compile_stats();
  return after.compilations > before.compilations ? "compiled"
         : after.disk_loads > before.disk_loads   ? "loaded"
                                                  : "nowhere";
}

bool is_cubin(const std::string& code) {
  return code.starts_with(
      "\x7f"
      "ELF");
}

}  // namespace

TEST_CASE("prepare: compiling finds it, for each architecture and the host") {
  fake_cuda();
  FreshCache cache;
  for (const Kernel& kernel : {scale_kernel(), two_launch_kernel(), watched_kernel()})
    for (const char* target : {"sm_80", "sm_90", "host"}) {
      const std::vector<Artifact> made = prepare(target, kernel);
      REQUIRE(made.size() == 1);
      CHECK_FALSE(made[0].was_present);
      CHECK(made[0].bytes > 100);
      CHECK(made[0].milliseconds > 0);
      CHECK(made[0].what ==
            (std::string(target) == "host" ? "code for host" : fmt::format("PTX for {}", target)));
      const std::vector<Artifact> again = prepare(target, kernel);
      CHECK(again[0].was_present);
      CHECK(again[0].bytes == made[0].bytes);
      CHECK(again[0].milliseconds == 0);
    }
  CHECK(cache_info().front().entries == 9);
  const auto all_loaded = [](const Kernel& kernel) {
    for (const char* name : {"cuda", "cuda:1", "cuda:3", "emulator", "emulator:sm_90", "host"}) {
      INFO(name);
      CHECK(origin(device(name), kernel) == "loaded");
    }
  };
  all_loaded(scale_kernel());
  all_loaded(two_launch_kernel());
  all_loaded(watched_kernel());  // with more workspaces and launches on a GPU
  CHECK(origin(device("emulator:sm_86"), scale_kernel()) == "compiled");
  CHECK(origin(device("cuda"), scale_kernel(1)) == "compiled");
  EnvironmentGuard without("KILN_WITHOUT", "simplify");  // other code
  CHECK(origin(device("cuda"), scale_kernel()) == "compiled");
}

TEST_CASE("prepare: a directory of its own, which others then read") {
  fake_cuda();
  FreshCache cache;
  const fs::path image = cache.path() / "image";
  prepare("sm_90", scale_kernel(),
          CacheLayers({DiskCache(image, DiskCache::kUnlimited, DiskCache::Use::Shared)}));
  CHECK(origin(device("cuda"), scale_kernel(1)) == "compiled");
  {
    EnvironmentGuard further("KILN_CACHE_PATH", image);
    CHECK(origin(device("cuda"), scale_kernel()) == "loaded");
    CHECK(prepare("sm_90", scale_kernel()).at(0).was_present);
  }
  CHECK(origin(device("cuda"), scale_kernel()) == "compiled");
  EnvironmentGuard only("KILN_CACHE_DIR", image);
  fs::permissions(image, fs::perms::owner_read | fs::perms::owner_exec);
  CHECK(origin(device("cuda"), scale_kernel()) == "loaded");
  CHECK(origin(device("cuda"), scale_kernel(1)) == "compiled");
  CHECK_THAT(error_of([] { prepare("sm_80", scale_kernel()); }),
             Contains("scale: the PTX for sm_80 cannot be stored: ") &&
                 Contains("image: it is read-only | a directory that this user may write"));
  fs::permissions(image, fs::perms::owner_all);
}

TEST_CASE("prepare: cubins of a ptxas, for machines with and without it") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  TemporaryDirectory tools;
  const std::string ptxas = write_fake_ptxas(tools.path());
  const auto calls = [&] {
    const std::string text = read_file(tools.path() / "calls");
    return std::count(text.begin(), text.end(), '\n');
  };
  {
    EnvironmentGuard with("KILN_PTXAS", ptxas);
    const std::vector<Artifact> made = prepare("sm_90", scale_kernel());
    REQUIRE(made.size() == 2);
    CHECK(made[1].what == "cubin for sm_90 by ptxas V12.4.131");
    CHECK_FALSE(made[1].was_present);
    CHECK(prepare("sm_90", scale_kernel()).at(1).was_present);
    CHECK(calls() == 1);
    CHECK(origin(device("cuda"), scale_kernel()) == "loaded");
    CHECK(is_cubin(fake.loaded));
    CHECK(calls() == 1);
  }
  EnvironmentGuard without("KILN_PTXAS", "");
  CHECK(origin(device("cuda"), scale_kernel()) == "loaded");
  CHECK(is_cubin(fake.loaded));
  CHECK(origin(device("cuda:3"), scale_kernel()) == "compiled");  // for that GPU there is none
  CHECK_FALSE(is_cubin(fake.loaded));
  CHECK(calls() == 1);

  // What only a compilation with a ptxas made is not for those without.
  {
    EnvironmentGuard with("KILN_PTXAS", ptxas);
    compile(device("cuda"), scale_kernel(1));
    CHECK(is_cubin(fake.loaded));
  }
  CHECK(origin(device("cuda"), scale_kernel(1)) == "loaded");
  CHECK_FALSE(is_cubin(fake.loaded));

  // One that this driver refuses leaves the PTX.
  fake.fail("cuModuleLoadDataEx", cuda::Result::Success);
  for (const auto& file : fs::directory_iterator(cache.path()))
    if (read_file(file.path())
            .find("\x7f"
                  "ELF") != std::string::npos)
      DiskCache(cache.path())
          .store(file.path().stem(),
                 "\x7f"
                 "ELF corrupt .version 8.0");
  CHECK(origin(device("cuda"), scale_kernel()) == "loaded");
  CHECK_FALSE(is_cubin(fake.loaded));
}

TEST_CASE("prepare: a ptxas that was chosen must work, one that was found need not") {
  fake_cuda();
  FreshCache cache;
  TemporaryDirectory tools;
  const std::string ptxas = write_fake_ptxas(tools.path());
  EnvironmentGuard fails("KILN_TEST_PTXAS_FAILS", "1");
  {
    EnvironmentGuard chosen("KILN_PTXAS", ptxas);
    CHECK_THAT(device_error_of([] { prepare("sm_90", scale_kernel()); }),
               Contains("does not assemble 'scale' for sm_90"));
  }
  EnvironmentGuard found({{"KILN_PTXAS", "auto"}, {"PATH", tools.path()}});
  CHECK(prepare("sm_80", scale_kernel()).size() == 1);
}

TEST_CASE("prepare: a kernel that is scheduled for one GPU") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  const Kernel kernel = testing::late_kernel(KILN_TESTS_DIR, "copy_ring.tile");
  CHECK(prepare("sm_90", kernel).at(0).what == "PTX for sm_90a");
  CHECK(prepare("sm_90a", kernel).at(0).was_present);
  CHECK(origin(device("cuda"), kernel) == "loaded");
  CHECK_THAT(fake.loaded, Contains(".target sm_90a"));
  CHECK_THAT(error_of([&] { prepare("sm_80", kernel); }),
             Contains("copy_ring is scheduled for sm_90a: sm_80 cannot run it"));
  CHECK_THAT(error_of([&] { prepare("sm_100", kernel); }), Contains("sm_100 cannot run it"));
}

TEST_CASE("prepare: what is wrong is said") {
  FreshCache cache;
  CHECK_THAT(error_of([] { prepare("hopper", scale_kernel()); }),
             Contains("no GPU architecture is named 'hopper'"));
  Kernel bad = scale_kernel();
  bad.op(bad.region(bad.body).ops.back()).regions.clear();
  CHECK_THROWS_AS(prepare("sm_80", bad), UserError);
  EnvironmentGuard off("KILN_CACHE", "off");
  CHECK_THAT(error_of([] { prepare("host", scale_kernel()); }),
             Contains("scale: the code for host cannot be stored: there is no disk cache"));
}
