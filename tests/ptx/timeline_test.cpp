// The clock of one block: what waits for what, and which of three schedules is the fastest.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <map>

#include "tests/ptx/hopper.h"

namespace kiln::ptx {
namespace {

Report timed(const std::string& file, HopperProblem& problem) {
  Options options;
  options.timeline = true;
  return problem.run(parse(hopper_text(file)), 1, options);
}

}  // namespace

// The same attention with no overlap inside a warpgroup, with the next scores under way during the
// softmax, and with a guessed maximum besides. On an H200 the tensor cores were busy 62 to 65, 73 to
// 76 and 82 to 86 % of the time, from the sparsest problem to the densest.
TEST_CASE("a timeline ranks schedules as a GPU does", "[hopper][timeline]") {
  HopperProblem problem{1, 1024, false, 1};
  problem.draw(5);
  std::map<std::string, double> share;
  for (const char* file : {"noov.ptx", "base.ptx", "xdn.ptx"}) {
    INFO(file);
    const Report report = timed(file, problem);
    CHECK(hopper_findings(report) == "");
    CHECK(problem.error() < 2e-3);
    share[file] = report.timeline.tensor_share();
    WARN(file << " " << report.timeline.clocks << " " << share[file]);
  }
}

}  // namespace kiln::ptx
