// Mistakes in the PTX of a kernel of the late IR: roles, a ring, wgmma, stores by tensor maps.
#include <catch2/catch.hpp>

#include "ir/canon.h"
#include "runtime/emulator_device.h"
#include "runtime/gpu_code.h"
#include "tests/codegen/harness.h"
#include "tests/support/hopper_judge.h"
#include "tests/support/late_file.h"

using namespace kiln;
using namespace kiln::testing;

TEST_CASE("each mistake in the protocol of a late file shows", "[late][emulated][mutation][long]") {
  if (!on_host()) return;
  const auto kernel =
      std::make_shared<const Kernel>(canonical(late_kernel(KILN_TESTS_DIR, "gemm.tile")));
  const GpuCode code = compile_for_gpu(*kernel, "sm_90a").code;
  std::vector<RunHopper> problems;
  // Few rounds; several tiles a block, of more rounds than the ring has slots, with ragged ends.
  for (auto [m, n, k, ctas] : {std::tuple{130, 264, 40, 1}, {260, 520, 296, 1}}) {
    RandomOptions options;
    options.padded = false;
    const RandomBindings inputs(*kernel, {{"m", m}, {"n", n}, {"k", k}, {"ctas", ctas}}, {},
                                options);
    RandomBindings expected = inputs;
    interpret(*kernel, expected.bindings());
    problems.push_back([=](const std::string& text, ptx::AsyncMode mode, uint64_t most) mutable {
      GpuCode changed = code;
      changed.ptx = text;
      RandomBindings mine = inputs, theirs = expected;
      ptx::Options options;
      options.async = mode;
      options.threads = 1;
      options.max_instructions = most;
      HopperRun run;
      for (const ptx::Report& report :
           emulate(*emulated(*kernel, changed), mine.bindings(), options)) {
        for (const ptx::Finding& finding : report.findings) run.finding += finding.text();
        run.lines.insert(run.lines.end(), report.lines.begin(), report.lines.end());
      }
      run.wrong = mine.damage();
      if (run.wrong.empty()) run.wrong = mine.difference(theirs, 2e-2);
      const Memory c = mine.bindings().tensors.at("c");
      const auto* bytes = static_cast<const std::byte*>(c.data);
      run.results.assign(bytes, bytes + 2 * c.shape[0] * c.shape[1]);
      return run;
    });
  }
  check_hopper_mutants("gemm.tile", {code.ptx, problems, {}}, 50);
}
