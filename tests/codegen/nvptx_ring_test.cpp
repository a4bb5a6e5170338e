// What is fetched rounds ahead, in the emulator: any number of rounds in both modes of asynchronous
// copies; and a wait or a barrier that is taken out is found there.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "runtime/emulator_device.h"
#include "tests/codegen/nvptx_support.h"
#include "tests/passes/race_check.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

// y = a · b, and with a mask only of the selected rounds, or of those that a branch takes.
Kernel product(int stages, bool with_mask, bool branch) {
  return trace("product", [&] {
    Dim depth = dim("depth"), rounds = dim("rounds");
    Tensor a = input("a", F16, {64, depth}), b = input("b", F16, {depth, 64});
    Tensor mask = input("mask", Bool, {rounds});
    Tensor y = output("y", F32, {64, 64});
    launch({1});
    Tile left = alloc_shared({64, 32}, F16), right = alloc_shared({32, 64}, F16);
    Tile sum = alloc_fragment({64, 64}, F32);
    clear(sum);
    auto step = [&](const Expr& round) {
      copy(a(span(0, 64), span(round * 32, 32)), left);
      copy(b(span(round * 32, 32), span(0, 64)), right);
      gemm(left, right, sum);
    };
    if (with_mask && !branch) {
      for (auto round : selected(mask(all), {.stages = stages})) step(round);
    } else {
      for (auto round : pipelined(rounds, {.stages = stages})) {
        if (branch) when(mask(round), [&] { step(round); });
        if (!branch) step(round);
      }
    }
    copy(sum, y);
  });
}

Check check_of(int64_t rounds) {
  Check check;
  check.dims = {{"rounds", rounds}, {"depth", 32 * rounds}};
  check.tolerance = 0;
  return check;
}

// The first finding or difference of a lowered kernel, whose meaning is that of `kernel`.
std::string fault_of(const Kernel& kernel, const Kernel& lowered, ptx::AsyncMode mode,
                     const Check& check) {
  RandomBindings expected(kernel, check.dims, check.params, check.options), actual = expected;
  interpret(kernel, expected.bindings());
  ptx::Options options;
  options.async = mode;
  const std::unique_ptr<Executable> code = emulated(kernel, compile_ptx(lowered));
  for (const ptx::Report& report : emulate(*code, actual.bindings(), options))
    if (!report.findings.empty()) return report.findings[0].text();
  return actual.difference(expected, check.tolerance);
}

}  // namespace

TEST_CASE("rings: any number of rounds and slots", "[nvptx]") {
  for (int stages : {2, 3, 4})
    for (int form : {0, 1, 2}) {
      const Kernel kernel = product(stages, form > 0, form > 1);
      const Kernel after = lowered(kernel, "sm_80");
      for (int64_t rounds : {0, 1, 2, 3, 7})
        for (ptx::AsyncMode mode : {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest}) {
          INFO("stages " << stages << ", form " << form << ", rounds " << rounds);
          CHECK(fault_of(kernel, after, mode, check_of(rounds)) == "");
        }
    }
}

TEST_CASE("rings: a missing wait or barrier is found", "[nvptx]") {
  for (int stages : {2, 3})
    for (int form : {0, 2}) {
      const Kernel kernel = product(stages, form > 0, form > 1);
      int mutants = 0;
      for_each_mutant(lowered(kernel, "sm_80"), [&](const Kernel& mutant, const std::string& what) {
        INFO("stages " << stages << ", form " << form << ", " << what);
        ++mutants;
        std::string fault;
        for (uint64_t seed = 1; seed <= 8 && fault.empty(); ++seed) {
          Check check = check_of(7);
          check.options.seed = seed;
          fault = fault_of(kernel, mutant, ptx::AsyncMode::AtLatest, check);
        }
        CHECK(fault != "");
      });
      CHECK(mutants >= 3);
    }
}
