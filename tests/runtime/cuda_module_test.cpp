// Code on a GPU: loading, the compiler's words, attributes, shared and local memory.
#include <catch2/catch.hpp>
#include <map>

#include "ir/error.h"
#include "runtime/cuda_module.h"
#include "tests/runtime/cuda_support.h"
#include "tests/runtime/support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;
using cuda::Result;

TEST_CASE("cuda: a module is loaded, kept by its functions, unloaded") {
  FakeCuda& fake = fake_cuda();
  const int64_t before = fake.modules;
  {
    auto module = cuda::load_module(cuda::context(0), saxpy_ptx(), "saxpy");
    CHECK(module->log() == "ptxas info    : Used 32 registers");
    CHECK(module->name() == "saxpy");
    cuda::Function function(module, "saxpy");
    module.reset();
    CHECK(fake.modules == before + 1);
    CHECK(std::string(function.name()) == "saxpy");
    const cuda::FunctionAttributes& attributes = function.attributes();
    CHECK(attributes.registers == 32);
    CHECK(attributes.local_bytes == 0);
    CHECK(attributes.static_shared == 1024);
    CHECK(attributes.max_threads == 1024);
    CHECK(attributes.ptx_version == 80);
    CHECK(attributes.binary_version == 90);
    CHECK(function.local_memory_complaint() == "");
    CHECK(function.blocks_per_multiprocessor(256) == 8);
  }
  CHECK(fake.modules == before);
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: PTX that the driver refuses comes with its log and its line") {
  FakeCuda& fake = fake_cuda();
  std::string ptx = saxpy_ptx();
  ptx.replace(ptx.find("ret;"), 4, "bogus.f32 %f1;");
  const std::string text =
      device_error_of([&] { cuda::load_module(cuda::context(0), ptx, "attend"); });
  CHECK_THAT(text, Contains("the driver (CUDA 12.4) refuses the PTX of 'attend' on device 0 (Fake "
                            "H200) (CUDA_ERROR_INVALID_PTX)"));
  CHECK_THAT(text, Contains("line 6; fatal   : Parsing error near 'bogus': syntax error\n"));
  CHECK_THAT(text, Contains("     6 |   bogus.f32 %f1;\n"));
  CHECK_THAT(text, Contains("try: report this program with the PTX"));
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: PTX that is too new names both versions") {
  FakeCuda& fake = fake_cuda();
  CHECK_NOTHROW(cuda::load_module(cuda::context(0), saxpy_ptx("8.4"), "a"));
  CHECK_THAT(
      device_error_of([] { cuda::load_module(cuda::context(0), saxpy_ptx("8.7"), "attend"); }),
      Contains(
          "the PTX of 'attend' is newer than the driver: it is PTX 8.7, the driver (CUDA 12.4) "
          "takes PTX up to 8.4 (CUDA_ERROR_UNSUPPORTED_PTX_VERSION)") &&
          Contains("try: update the NVIDIA driver, or compile for an older PTX version"));
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: PTX versions") {
  CHECK(cuda::ptx_version("// a comment\n.version 8.3\n.target sm_90a\n") == 83);
  CHECK(cuda::ptx_version(".version\t 7.0") == 70);
  for (std::string_view none : {"", ".version", ".version x", ".version 8", ".version 8.",
                                "\x7f"
                                "ELF"})
    CHECK_FALSE(cuda::ptx_version(none));
  for (auto [driver, ptx] : std::map<int, int>{{12000, 80},
                                               {12010, 81},
                                               {12020, 82},
                                               {12030, 83},
                                               {12040, 84},
                                               {12050, 85},
                                               {12060, 85},
                                               {12070, 86},
                                               {12080, 87},
                                               {12090, 88},
                                               {13000, 90},
                                               {13010, 91}})
    CHECK(cuda::newest_ptx(driver) == ptx);
  CHECK(cuda::newest_ptx(14000) >= 91);
}

TEST_CASE("cuda: code that is neither PTX nor a cubin, or for another GPU") {
  FakeCuda& fake = fake_cuda();
  const auto load = [](const std::string& code) {
    return device_error_of([&] { cuda::load_module(cuda::context(0), code, "attend"); });
  };
  for (const std::string& code : {std::string(),
                                  std::string("\x7f"
                                              "ELF\0\0",
                                              6),
                                  std::string("junk")})
    CHECK_THAT(load(code), Contains("neither PTX nor a sound cubin while loading the code of "
                                    "'attend' (CUDA_ERROR_INVALID_IMAGE): device 0 (Fake H200): "
                                    "the driver gave no log"));
  for (auto [result, expected] : std::map<Result, std::string>{
           {Result::NoBinaryForGpu, "the code is for another GPU"},
           {Result::JitCompilerNotFound, "libnvidia-ptxjitcompiler.so.1"},
           {Result::OutOfMemory, "out of device memory while loading the code of 'attend'"}}) {
    fake.fail("cuModuleLoadDataEx", result);
    CHECK_THAT(load(saxpy_ptx()), Contains(expected));
  }
}

TEST_CASE("cuda: a function that is not there") {
  FakeCuda& fake = fake_cuda();
  auto module = cuda::load_module(cuda::context(0), saxpy_ptx(), "saxpy");
  CHECK_THAT(device_error_of([&] { cuda::Function(module, "gemm"); }),
             Contains("looking for the function 'gemm' in 'saxpy' (CUDA_ERROR_NOT_FOUND)"));
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: dynamic shared memory above 48 KiB is asked for once, and never lowered") {
  FakeCuda& fake = fake_cuda();
  auto module = cuda::load_module(cuda::context(1), saxpy_ptx(), "saxpy");
  CHECK(cuda::Function(module, "empty", 48 << 10).dynamic_shared() == 48 << 10);
  CHECK(fake.calls("cuFuncSetAttribute") == 0);
  cuda::Function large(module, "empty", 200 << 10);
  CHECK(fake.calls("cuFuncSetAttribute") == 1);
  CHECK(large.blocks_per_multiprocessor(128) == 1);
  cuda::Function smaller(module, "empty", 100 << 10);
  CHECK(fake.calls("cuFuncSetAttribute") == 1);
}

TEST_CASE("cuda: more shared memory than the device has") {
  FakeCuda& fake = fake_cuda();
  auto module = cuda::load_module(cuda::context(0), saxpy_ptx(), "saxpy");
  CHECK_NOTHROW(cuda::Function(module, "saxpy", 226 << 10));
  const std::string text = error_of([&] { cuda::Function(module, "saxpy", (226 << 10) + 1); });
  CHECK_THAT(text, Contains("kernel 'saxpy' needs 232449 bytes of shared memory a block (1024 of "
                            "them static), device 0 (Fake H200) has 232448"));
  CHECK_THAT(text, Contains("| use smaller tiles or fewer pipeline stages"));
  CHECK_THAT(error_of([&] { cuda::Function(module, "saxpy", -1); }), Contains("shared memory"));
  CHECK(fake.stack().empty());
}

TEST_CASE("cuda: local memory is complained of, with its cost and the compiler's words") {
  FakeCuda& fake = fake_cuda();
  fake.local_bytes = 64;
  fake.registers = 255;
  fake.jit_log = "ptxas info    : 32 bytes spill stores";
  auto module = cuda::load_module(cuda::context(0), saxpy_ptx(), "saxpy");
  const std::string text = cuda::Function(module, "saxpy").local_memory_complaint();
  // 64 bytes · 132 · 2048 threads
  CHECK_THAT(text, Contains("kernel 'saxpy' keeps 64 bytes a thread in local memory (up to 16.50 "
                            "MiB on device 0 (Fake H200)): 255 registers"));
  CHECK_THAT(text, Contains("\nptxas info    : 32 bytes spill stores"));
}
