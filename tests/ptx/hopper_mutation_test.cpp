// Mistakes in the protocols of two whole Hopper kernels. One of our own is in
// tests/codegen/late_mutation_test.cpp.
#include <catch2/catch.hpp>

#include "tests/ptx/hopper.h"
#include "tests/support/hopper_mutants.h"

namespace kiln::ptx {
namespace {

// Tiles of one block and of several, with a diagonal and without; scores that make the softmax take
// its slow path.
std::vector<testing::RunHopper> problems() {
  std::vector<testing::RunHopper> all;
  for (HopperProblem problem :
       {HopperProblem{2, 384, true, 0.6}, HopperProblem{1, 256, false, 1, 12},
        HopperProblem{1, 640, true, 0}, HopperProblem{1, 896, true, 0.2}}) {
    problem.draw(5);
    all.push_back([problem](const std::string& text, AsyncMode mode, uint64_t most) {
      HopperProblem mine = problem;
      Options options;
      options.async = mode;
      options.threads = 1;
      options.max_instructions = most;
      const Report report = mine.run(parse(text), 1, options);
      const auto bytes = std::as_bytes(std::span(mine.o));
      return testing::HopperRun{hopper_findings(report),
                                mine.error() < 2e-3 ? "" : "the result",
                                {bytes.begin(), bytes.end()},
                                report.lines};
    });
  }
  return all;
}

}  // namespace

TEST_CASE("each mistake in the protocol of a Hopper kernel shows", "[hopper][mutation][long]") {
  for (const char* file : {"xdn.ptx", "best22.ptx"}) DYNAMIC_SECTION(file) {
      testing::check_hopper_mutants(file, {hopper_text(file), problems()}, 200);
    }
}

}  // namespace kiln::ptx
