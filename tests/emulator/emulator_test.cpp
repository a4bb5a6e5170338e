// The library's kernels on the device `emulator`: as in the interpreter and without findings, in
// both modes of asynchronous copies; and what a finding is to a caller.
#include <catch2/catch.hpp>
#include <regex>

#include "ir/canon.h"
#include "kernels/registry.h"
#include "runtime/compile.h"
#include "runtime/emulator_device.h"
#include "runtime/gpu_code.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

using testing::RandomBindings;

struct Case {
  const char* kernel;
  std::map<std::string, std::string> options;
  std::map<std::string, int64_t> dims;
  double tolerance;  // against the interpreter
};

// Partial tiles, several blocks, more than one step of every pipeline.
const Case kCases[] = {
    {"matmul", {}, {{"m", 100}, {"n", 72}, {"k", 200}}, 1e-4},
    {"matmul", {{"dtype", "f32"}}, {{"m", 70}, {"n", 70}, {"k", 40}}, 1e-4},
    {"block_sparse_attention",
     {{"head_dim", "64"}, {"causal", "true"}, {"lse", "true"}},
     {{"batch", 1}, {"heads", 2}, {"heads_kv", 1}, {"seq", 150}, {"seq_kv", 200}},
     4e-3},
    {"block_sparse_attention",
     {{"head_dim", "32"}, {"dtype", "bf16"}, {"form", "dense"}, {"written_out", "true"}},
     {{"batch", 1}, {"heads", 1}, {"heads_kv", 1}, {"seq", 130}, {"seq_kv", 130}},
     3e-2},
    {"block_sparse_attention",
     {{"head_dim", "32"}, {"schedule", "overlap"}, {"stages", "3"}, {"causal", "true"}},
     {{"batch", 1}, {"heads", 1}, {"heads_kv", 1}, {"seq", 130}, {"seq_kv", 330}},
     4e-3},
    {"block_sparse_attention",
     {{"head_dim", "16"}, {"schedule", "overlap"}, {"form", "dense"}, {"block_n", "32"}},
     {{"batch", 1}, {"heads", 1}, {"heads_kv", 1}, {"seq", 64}, {"seq_kv", 270}},
     4e-3},
};

struct Problem {
  Kernel kernel;
  GpuCode code;
  RandomBindings inputs;

  explicit Problem(const Case& test)
      : kernel(build(test)),
        code(compile_for_gpu(kernel, "sm_80").code),
        inputs(kernel, test.dims, {{"scale", Scalar::of_float(F64, 0.1)}}, {.integers = false}) {}

  static Kernel build(const Case& test) {
    const KernelEntry& entry = kernel_named(test.kernel);
    Kernel kernel = entry.build(entry.with_defaults(test.options), "sm_80");
    kernel = canonical(kernel);
    return kernel;
  }

  // The findings of a run of this code, and what it made of the inputs.
  std::string run(const GpuCode& mutated, ptx::AsyncMode mode, RandomBindings& results) const {
    ptx::Options options;
    options.async = mode;
    options.max_instructions = 1000000;
    std::string text;
    auto executable = emulated(kernel, mutated);
    for (const ptx::Report& report : emulate(*executable, results.bindings(), options))
      for (const ptx::Finding& finding : report.findings) text += finding.text() + "\n";
    return text;
  }
};

constexpr ptx::AsyncMode kModes[] = {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest};

TEST_CASE("the library's kernels are right and clean in the emulator") {
  for (const Case& test : kCases) {
    INFO(test.kernel);
    Problem problem(test);
    RandomBindings expected = problem.inputs;
    interpret(problem.kernel, expected.bindings());
    for (ptx::AsyncMode mode : kModes) {
      RandomBindings results = problem.inputs;
      CHECK(problem.run(problem.code, mode, results) == "");
      CHECK(results.difference(expected, test.tolerance) == "");
      CHECK(results.damage() == "");
    }
  }
}

TEST_CASE("a finding on the device is a DeviceError that names the kernel") {
  Problem problem(kCases[0]);
  GpuCode code = problem.code;
  code.ptx = std::regex_replace(code.ptx, std::regex(R"(cp\.async\.wait_group[^;]*;)"), "");
  auto executable = emulated(problem.kernel, code);
  try {
    executable->run(problem.inputs.bindings());
    FAIL("nothing was found");
  } catch (const DeviceError& error) {
    CHECK_THAT(error.what(), Catch::Contains("matmul: the emulator found") &&
                                 Catch::Contains("copy not awaited") &&
                                 Catch::Contains("kernel.cpp:"));
  }
}

TEST_CASE("emulators of several targets") {
  CHECK(device("emulator").target() == "sm_80");
  CHECK(device("emulator:sm_90").name() == "emulator:sm_90");
  CHECK(&device("emulator:sm_80") == &device("emulator"));
  CHECK_THROWS_AS(device("emulator:sm_1"), UserError);
}

}  // namespace
}  // namespace kiln
