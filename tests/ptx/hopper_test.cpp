// Whole Hopper kernels: TMA, mbarriers, roles and wgmma together.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "tests/ptx/hopper.h"

namespace kiln::ptx {

TEST_CASE("whole Hopper kernels give the right results, however late what they begin is done",
          "[hopper]") {
  const HopperProblem problems[] = {{1, 512, false, 1}, {2, 384, true, 0.5}, {1, 256, true, 1, 12}};
  uint64_t seed = 1;
  for (const char* file : {"xdn.ptx", "best22.ptx"}) {
    const Program program = parse(hopper_text(file));
    for (HopperProblem problem : problems) {
      problem.draw(++seed);
      for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest, AsyncMode::Random}) {
        INFO(fmt::format("{}: {} heads, {} rows, mode {}", file, problem.heads, problem.rows,
                         static_cast<int>(mode)));
        Options options;
        options.async = mode;
        options.threads = 1;
        options.seed = ++seed;
        const Report report = problem.run(program, 2, options);
        CHECK(hopper_findings(report) == "");
        CHECK(problem.error() < 2e-3);
      }
    }
  }
}

}  // namespace kiln::ptx
