// An external ptxas: found, asked, and its cubins cached beside the PTX.
#include "runtime/external_ptxas.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/error.h"
#include "runtime/cache.h"
#include "runtime/compile.h"
#include "runtime/cuda_device.h"
#include "tests/runtime/gpu_support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

namespace {

int64_t calls(const fs::path& directory) {
  const std::string text = read_file(directory / "calls");
  return std::count(text.begin(), text.end(), '\n');
}

bool is_cubin(const std::string& code) {
  return code.starts_with(
      "\x7f"
      "ELF");
}

}  // namespace

TEST_CASE("ptxas: not used unless asked for") {
  EnvironmentGuard unset("KILN_PTXAS", "");
  CHECK_FALSE(external_ptxas());
}

TEST_CASE("ptxas: by path, or the first that is found") {
  TemporaryDirectory directory;
  const fs::path path = write_fake_ptxas(directory.path());
  {
    EnvironmentGuard guard("KILN_PTXAS", path);
    const auto found = external_ptxas();
    REQUIRE(found);
    CHECK(found->path == path);
    CHECK(found->version == "V12.4.131");
    CHECK(found->chosen);
  }
  EnvironmentGuard guard(
      {{"KILN_PTXAS", "auto"},
       {"PATH", "relative:/nonexistent:" + directory.path().string() + ":/bin"}});
  const auto found = external_ptxas();
  REQUIRE(found);
  CHECK(found->path == path);
  CHECK_FALSE(found->chosen);
}

TEST_CASE("ptxas: a path that is none is refused") {
  TemporaryDirectory directory;
  write_file(directory.path() / "text", "not a program");
  for (std::string path : {std::string("/nonexistent/ptxas"), directory.path().string(),
                           (directory.path() / "text").string(), std::string("/bin/true")}) {
    EnvironmentGuard guard("KILN_PTXAS", path);
    CHECK_THAT(error_of([] { external_ptxas(); }),
               Contains(fmt::format("KILN_PTXAS: '{}' is no ptxas that can be run", path)));
  }
}

TEST_CASE("ptxas: what it says comes with the error") {
  TemporaryDirectory directory;
  const ExternalPtxas ptxas{write_fake_ptxas(directory.path()), "V12.4.131", true};
  const Assembled assembled = assemble(ptxas, "some PTX", "sm_90", "scale");
  CHECK(assembled.cubin ==
        "\x7f"
        "ELFsome PTX");
  CHECK_THAT(read_file(directory.path() / "calls"), Contains("-v -arch=sm_90 "));
  EnvironmentGuard guard("KILN_TEST_PTXAS_FAILS", "1");
  CHECK_THAT(device_error_of([&] { assemble(ptxas, "some PTX", "sm_90", "scale"); }),
             Contains("(V12.4.131) does not assemble 'scale' for sm_90:\nptxas fatal   : it is "
                      "told to fail") &&
                 Contains("try: unset KILN_PTXAS"));
}

TEST_CASE("ptxas: the device loads its cubin, and finds it again on disk") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  TemporaryDirectory directory;
  CHECK(scales(device("cuda"), 10));
  CHECK_FALSE(is_cubin(fake.loaded));
  EnvironmentGuard guard("KILN_PTXAS", write_fake_ptxas(directory.path()));
  for (int i = 0; i < 3; ++i) {
    forget_compiled();
    fake.loaded.clear();
    CHECK(scales(device("cuda"), 10));
    CHECK(is_cubin(fake.loaded));
    CHECK(calls(directory.path()) == 1);
  }
  // Another version's cubin is another entry.
  write_fake_ptxas(directory.path(), "V13.0.48");
  fs::last_write_time(directory.path() / "ptxas",
                      fs::file_time_type::clock::now() + std::chrono::seconds(5));
  forget_compiled();
  CHECK(scales(device("cuda"), 10));
  CHECK(calls(directory.path()) == 2);
  // Another architecture's too; PTX for sm_80 is assembled for the GPU that is there.
  CHECK_NOTHROW(compile(cuda_device(0, "sm_80"), scale_kernel()));
  CHECK(calls(directory.path()) == 3);
  CHECK_NOTHROW(compile(cuda_device(0, "sm_90a"), scale_kernel()));
  const std::string all = read_file(directory.path() / "calls");
  CHECK(all.find("-arch=sm_80") == all.npos);
  CHECK_THAT(all, Contains("-arch=sm_90a"));
}

TEST_CASE("ptxas: a cubin that the driver refuses is made again, a damaged one too") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  TemporaryDirectory directory;
  EnvironmentGuard guard("KILN_PTXAS", write_fake_ptxas(directory.path()));
  CHECK(scales(device("cuda"), 10));
  CHECK(calls(directory.path()) == 1);
  int64_t expected = 1;
  for (const auto& file : fs::directory_iterator(cache.path())) {
    const std::string good = read_file(file.path());
    if (good.find("\x7f"
                  "ELF") == good.npos)
      continue;
    // Sound to the cache: stored by the rules, but no cubin.
    DiskCache(cache.path())
        .store(file.path().stem(),
               "\x7f"
               "ELF corrupt .version 8.0");
    for (bool damaged : {false, true}) {
      if (damaged) write_file(file.path(), good.substr(0, good.size() / 2));
      forget_compiled();
      CHECK(scales(device("cuda"), 10));
      CHECK(is_cubin(fake.loaded));
      CHECK(calls(directory.path()) == ++expected);
      CHECK(read_file(file.path()) == good);
    }
  }
  CHECK(expected == 3);
}

TEST_CASE("ptxas: one that was only found may fail, one that was chosen may not") {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  TemporaryDirectory directory;
  const fs::path path = write_fake_ptxas(directory.path());
  EnvironmentGuard fails("KILN_TEST_PTXAS_FAILS", "1");
  {
    EnvironmentGuard guard("KILN_PTXAS", path);
    CHECK_THAT(device_error_of([] { scales(device("cuda"), 10); }),
               Contains("does not assemble 'scale' for sm_90"));
  }
  EnvironmentGuard guard({{"KILN_PTXAS", "auto"}, {"PATH", directory.path()}});
  CHECK(scales(device("cuda"), 10));
  CHECK_FALSE(is_cubin(fake.loaded));
}
