// Mistakes in the protocols of two whole Hopper kernels. One of our own is in
// tests/codegen/late_mutation_test.cpp.
#include <catch2/catch.hpp>

#include "tests/ptx/hopper.h"
#include "tests/support/hopper_judge.h"

namespace kiln::ptx {
namespace {

// Tiles of one block and of several, with a diagonal and without, of more blocks than a warp has
// lanes, in an order that the caller gives; scores that make the softmax take its slow path; as
// many blocks in all as end a ring in the slot that the first was in.
std::vector<testing::RunHopper> problems() {
  std::vector<testing::RunHopper> all;
  for (HopperProblem problem :
       {HopperProblem{2, 384, true, 0.6}, HopperProblem{1, 384, false, 1, 16},
        HopperProblem{1, 640, true, 0, 1, true}, HopperProblem{1, 896, true, 0.2},
        HopperProblem{1, 256, false, 1, 1, false, 37},
        HopperProblem{1, 128, false, 1, 1, false, 3}}) {
    problem.draw(5);
    all.push_back([problem](const std::string& text, AsyncMode mode, uint64_t most) {
      HopperProblem mine = problem;
      Options options;
      options.async = mode;
      options.threads = 1;
      options.max_instructions = most;
      const Report report = mine.run(parse(text), 1, options);
      const auto bytes = std::as_bytes(std::span(mine.o));
      return testing::HopperRun{
          hopper_findings(report), mine.damage(2e-3), {bytes.begin(), bytes.end()}, report.lines};
    });
  }
  return all;
}

void check(size_t step) {
  for (const std::string kernel : {"xdn", "best22"}) DYNAMIC_SECTION(kernel) {
      const auto notes = testing::notes_of(hopper_text(kernel + ".notes"));
      testing::check_hopper_mutants(kernel, {hopper_text(kernel + ".ptx"), problems(), notes},
                                    240 / step, step);
    }
}

}  // namespace

TEST_CASE("mistakes in the protocol of a Hopper kernel show, or are known", "[hopper][mutation]") {
  check(30);
}

TEST_CASE("each mistake in the protocol of a Hopper kernel shows", "[hopper][mutation][long]") {
  check(1);
}

}  // namespace kiln::ptx
