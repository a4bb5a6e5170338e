// Everything the library says goes to the log; of itself it writes to standard error at most.
#include "ir/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <iostream>
#include <mutex>

#include "runtime/compile.h"
#include "runtime/prepare.h"
#include "tests/runtime/gpu_support.h"

using namespace kiln;
using namespace kiln::test;
using Catch::Matchers::Contains;

namespace {

// What is written to a descriptor of this process while the object lives.
class Redirected {
 public:
  Redirected(int descriptor, const std::filesystem::path& file)
      : descriptor_(descriptor), saved_(::dup(descriptor)) {
    flush();
    const int to = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(to, descriptor_);
    ::close(to);
  }
  ~Redirected() {
    flush();
    ::dup2(saved_, descriptor_);
    ::close(saved_);
  }
  Redirected(const Redirected&) = delete;

 private:
  static void flush() {
    std::cout.flush();
    std::fflush(nullptr);
  }
  int descriptor_, saved_;
};

void run_watched(Device& where, double first) {
  Array x(F32, {4}, std::vector<double>{first, 2, 3, 4}), y(F32, {4});
  run(where, watched_kernel(), Arguments().tensor("x", x).tensor("y", y));
}

// What makes the library speak: watches on every device, a dump that cannot be written, a ptxas
// that fails, code that spills.
void make_noise() {
  FakeCuda& fake = fake_cuda();
  FreshCache cache;
  TemporaryDirectory directory;
  for (const char* name : {"host", "interpreter", "emulator"}) {
    run_watched(device(name), 1);
    error_of([&] { run_watched(device(name), -1); });
  }
  write_file(directory.path() / "file", "");
  EnvironmentGuard dump("KILN_DUMP", directory.path() / "file");
  compile(device("host"), scale_kernel());
  write_fake_ptxas(directory.path());
  EnvironmentGuard ptxas(
      {{"KILN_TEST_PTXAS_FAILS", "1"}, {"KILN_PTXAS", "auto"}, {"PATH", directory.path()}});
  fake.local_bytes = 48;
  compile(device("cuda"), scale_kernel());
  prepare("sm_90", scale_kernel());
}

}  // namespace

TEST_CASE("log: with one that was set the library writes nothing") {
  TemporaryDirectory directory;
  std::mutex mutex;
  std::string info, warnings, output;
  {
    Redirected out(1, directory.path() / "out"), err(2, directory.path() / "err");
    set_log([&](LogLevel level, std::string_view text) {
      std::lock_guard lock(mutex);
      (level == LogLevel::Info      ? info
       : level == LogLevel::Warning ? warnings
                                    : output) += std::string(text) + "|";
    });
    make_noise();
    set_log({});
  }
  CHECK(read_file(directory.path() / "out") == "");
  CHECK(read_file(directory.path() / "err") == "");
  CHECK_THAT(info, Contains("watched is ready on host (host "));
  CHECK_THAT(warnings, Contains("KILN_DUMP: cannot write ") &&
                           Contains("the driver compiles instead of ptxas: ") &&
                           Contains("kernel 'scale' keeps 48 bytes a thread in local memory") &&
                           Contains("there will be no cubin, only PTX: "));
  size_t watched = 0;
  for (size_t at = 0;
       (at = output.find("watch loaded, block 0, 0, 0: shared f32[4]\n", at)) != std::string::npos;
       ++at)
    ++watched;
  CHECK(watched == 6);
  CHECK_THAT(output, Contains(" 1 2 3 4\n|") && Contains(" -1 2 3 4\n|"));
}

TEST_CASE("log: by default warnings and what is watched go to standard error, nothing elsewhere") {
  TemporaryDirectory directory;
  {
    Redirected out(1, directory.path() / "out"), err(2, directory.path() / "err");
    make_noise();
  }
  CHECK(read_file(directory.path() / "out") == "");
  const std::string text = read_file(directory.path() / "err");
  CHECK_THAT(text, Contains("kiln: KILN_DUMP: cannot write ") && Contains("watch loaded, block") &&
                       !Contains("is ready on"));
}
