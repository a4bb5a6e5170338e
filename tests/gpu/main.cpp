// The tests that run kernels, on a GPU; and, if started by the name `kiln`, the command.
//
//     gpu_tests                        all; the last line is "N ran, 0 skipped, 0 failed"
//     gpu_tests [attention]            as any Catch2 program
//     gpu_tests --differential …       random programs alone, with that program's options
//     gpu_tests --conformance          PTX snippets against the manual's results
//     gpu_tests --example NAME …       one of the examples, on any --device
//     gpu_tests --launch-cost          what compiling, loading and launching cost
//     gpu_tests --race-attention PTX   hand-written kernels against what they are to match
//     gpu_tests --race-gemm CUBLAS
// KILN_TEST_DEVICE is the device, "cuda" if unset; KILN_TEST_PROGRAMS how many random programs.
// Without a GPU it says so and exits with 77, which ctest counts as skipped.
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "examples/examples.h"
#include "ir/error.h"
#include "runtime/device.h"
#include "tests/conformance/snippet.h"
#include "tests/differential/differential.h"
#include "tests/gpu/race.h"
#include "tools/gpu/launch_cost.h"
#include "tools/kiln/cli.h"

namespace {

constexpr int kSkipped = 77;

struct Counts {
  size_t ran = 0, failed = 0;
};
Counts counts;

// Counts test cases, and shows how far the run is.
struct Counter : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    ++counts.ran;
    const bool ok = stats.totals.testCases.failed == 0;
    counts.failed += !ok;
    std::printf("%-7s %s\n", ok ? "ok" : "FAILED", stats.testInfo.name.c_str());
    std::fflush(stdout);
  }
};
CATCH_REGISTER_LISTENER(Counter)

int differential(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"differential", "--device", std::getenv("KILN_TEST_DEVICE")};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return kiln::differential::run(static_cast<int>(argv.size()), argv.data());
}

// Random programs count as one test each.
void run_programs() {
  const char* given = std::getenv("KILN_TEST_PROGRAMS");
  const std::string programs = given ? given : "500";
  const bool ok = differential({"--programs", programs}) == 0;
  counts.ran += std::strtoul(programs.c_str(), nullptr, 10);
  counts.failed += !ok;
}

int run(int argc, char** argv) {
  setenv("KILN_TEST_DEVICE", "cuda", 0);
  try {
    kiln::device(std::getenv("KILN_TEST_DEVICE"));
  } catch (const kiln::Error& error) {
    std::printf("skipped: no GPU to test on: %s\n0 ran, 1 skipped, 0 failed\n", error.what());
    return kSkipped;
  }
  if (argc > 1 && std::strcmp(argv[1], "--differential") == 0)
    return differential({argv + 2, argv + argc});
  if (argc > 1 && std::strcmp(argv[1], "--conformance") == 0)
    return kiln::conformance::run_on_gpu();
  if (argc > 1 && std::strcmp(argv[1], "--example") == 0) return examples::run(argc - 1, argv + 1);
  if (argc > 1 && std::strcmp(argv[1], "--launch-cost") == 0) return kiln::measure_launch_cost();
  if (argc > 2 && std::strcmp(argv[1], "--race-attention") == 0)
    return kiln::race_attention(argv[2]);
  if (argc > 2 && std::strcmp(argv[1], "--race-gemm") == 0) return kiln::race_gemm(argv[2]);
  Catch::Session session;
  const int status = session.run(argc, argv);
  if (argc == 1) run_programs();
  std::printf("%zu ran, 0 skipped, %zu failed\n", counts.ran, counts.failed);
  return status != 0 || counts.failed != 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view path = argv[0];
  if (path.substr(path.rfind('/') + 1) == "kiln") return kiln::cli::main(argc, argv);
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
