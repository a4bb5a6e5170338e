// What cp.async cannot copy is fetched rounds ahead through registers, in the emulator: any number
// of rounds in both modes of asynchronous copies, whatever forbids cp.async; a barrier that is
// taken out is found; loads come before a round's work and stores after it, without bank conflicts.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "runtime/emulator_device.h"
#include "tests/codegen/nvptx_support.h"
#include "tests/passes/race_check.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

// y = a · b of 64 × depth and depth × 64, `step` of depth a round, the tiles f16.
struct Form {
  const char* name;
  DType a = F16, b = F16;
  int64_t step = 32;
  double pad = 0;      // of a
  bool mixed = false;  // does one of them come by cp.async?
  int64_t rows = 64;   // of a: less than the tile has
};
constexpr Form kForms[] = {
    {.name = "both convert", .a = F32, .b = F32},
    {.name = "one converts", .a = F32, .mixed = true},
    {.name = "the other converts", .b = F64, .step = 16, .mixed = true},
    {.name = "fp8", .a = E4M3, .b = E5M2},
    {.name = "rows of 24 bytes", .step = 12, .mixed = true},
    {.name = "padded with 1", .pad = 1, .mixed = true, .rows = 50},
    {.name = "fp8 padded with 2", .a = E4M3, .pad = 2, .mixed = true, .rows = 50},
};

enum class Rounds { All, Branch, Selected };

Kernel product(const Form& form, int stages, Rounds which) {
  return trace("product", [&] {
    Dim depth = dim("depth"), rounds = dim("rounds"), rows = dim("rows");
    Tensor a = input("a", form.a, {rows, depth}), b = input("b", form.b, {depth, 64});
    Tensor mask = input("mask", Bool, {rounds});
    Tensor y = output("y", F32, {64, 64});
    launch({1});
    Tile left = alloc_shared({64, form.step}, F16), right = alloc_shared({form.step, 64}, F16);
    Tile sum = alloc_fragment({64, 64}, F32);
    clear(sum);
    auto step = [&](const Expr& round) {
      const int by = static_cast<int>(form.step);
      copy(a(span(0 * round, 64), span(round * by, by)), left, {.pad = form.pad});
      copy(b(span(round * by, by), span(0, 64)), right);
      gemm(left, right, sum);
    };
    if (which == Rounds::Selected) {
      for (auto round : selected(mask(all), {.stages = stages})) step(round);
    } else {
      for (auto round : pipelined(rounds, {.stages = stages})) {
        if (which == Rounds::Branch) when(mask(round), [&] { step(round); });
        if (which == Rounds::All) step(round);
      }
    }
    copy(sum, y);
  });
}

// The last round may have less than the others.
Check check_of(const Form& form, int64_t rounds, bool whole = true) {
  Check check;
  const int64_t depth = form.step * rounds;
  check.dims = {{"rounds", rounds},
                {"rows", form.rows},
                {"depth", whole ? depth : std::max<int64_t>(0, depth - 5)}};
  check.options.padded = !whole;
  check.tolerance = 0;
  return check;
}

struct Outcome {
  std::string fault;  // the first finding or difference; empty if there is none
  ptx::Report report;
};

Outcome outcome_of(const Kernel& kernel, const Kernel& lowered, ptx::AsyncMode mode,
                   const Check& check) {
  RandomBindings expected(kernel, check.dims, check.params, check.options), actual = expected;
  interpret(kernel, expected.bindings());
  ptx::Options options;
  options.async = mode;
  const std::unique_ptr<Executable> code = emulated(kernel, compile_ptx(lowered));
  Outcome outcome;
  for (const ptx::Report& report : emulate(*code, actual.bindings(), options)) {
    if (!report.findings.empty()) outcome.fault = report.findings[0].text();
    outcome.report = report;
  }
  if (outcome.fault.empty()) outcome.fault = actual.difference(expected, check.tolerance);
  return outcome;
}

int64_t fetched_through_registers(const Kernel& kernel) {
  int64_t count = 0;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    count +=
        op.code == OpCode::Copy && op.word("reason").find("ahead through") != std::string::npos;
  });
  return count;
}

}  // namespace

TEST_CASE("staging: any number of rounds and slots", "[nvptx][long]") {
  for (const Form& form : kForms)
    for (int stages : {2, 3})
      for (Rounds which : {Rounds::All, Rounds::Branch, Rounds::Selected}) {
        const Kernel kernel = product(form, stages, which);
        const Kernel after = lowered(kernel, "sm_80");
        INFO(form.name << ", stages " << stages << ", rounds of kind " << static_cast<int>(which));
        CHECK(fetched_through_registers(after) == (form.mixed ? 1 : 2));
        for (int64_t rounds : {0, 1, 2, 5})
          for (ptx::AsyncMode mode : {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest}) {
            INFO("rounds " << rounds);
            CHECK(outcome_of(kernel, after, mode, check_of(form, rounds, rounds != 2)).fault == "");
          }
      }
}

TEST_CASE("staging: a missing barrier is found", "[nvptx]") {
  for (const Form& form : {kForms[0], kForms[1]})
    for (Rounds which : {Rounds::All, Rounds::Branch}) {
      const Kernel kernel = product(form, 2, which);
      int mutants = 0;
      for_each_mutant(lowered(kernel, "sm_80"), [&](const Kernel& mutant, const std::string& what) {
        INFO(form.name << ", rounds of kind " << static_cast<int>(which) << ", " << what);
        ++mutants;
        std::string fault;
        for (uint64_t seed = 1; seed <= 8 && fault.empty(); ++seed) {
          Check check = check_of(form, 7);
          check.options.seed = seed;
          fault = outcome_of(kernel, mutant, ptx::AsyncMode::AtLatest, check).fault;
        }
        CHECK(fault != "");
      });
      CHECK(mutants >= 1);
    }
}

// No advisory of ptxas, no spills; and the text has a round's loads, its work, its stores.
TEST_CASE("staging: loaded early, stored late", "[nvptx]") {
  for (const Form& form : {kForms[0], kForms[1], kForms[3], kForms[5]})
    for (const char* target : {"sm_80", "sm_90"}) {
      INFO(form.name << " for " << target);
      const std::string ptx = compile_for(product(form, 3, Rounds::All), target).ptx;
      CHECK(assembly_fault(ptx, target) == "");
      const size_t mma = ptx.rfind("mma.sync");
      REQUIRE(mma != std::string::npos);
      const size_t store = ptx.find("st.shared", mma), load = ptx.rfind("ld.global", mma);
      CHECK(store != std::string::npos);
      CHECK(ptx.rfind("bar", mma) < load);
      CHECK(ptx.find("ld.global", mma) == std::string::npos);
    }
}

TEST_CASE("staging: no bank conflicts", "[nvptx]") {
  for (const Form& form : kForms) {
    if (form.step == 12) continue;  // its rows are not aligned
    INFO(form.name);
    const Kernel kernel = product(form, 2, Rounds::All);
    const Outcome outcome =
        outcome_of(kernel, lowered(kernel, "sm_80"), ptx::AsyncMode::AtLatest, check_of(form, 8));
    CHECK(outcome.fault == "");
    CHECK(outcome.report.counters.bank_conflicts == 0);
  }
}
