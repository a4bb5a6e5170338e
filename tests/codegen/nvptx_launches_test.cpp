// Launches of one kernel: where the GPU can, a later one begins early and waits itself.
#include <algorithm>
#include <catch2/catch.hpp>

#include "codegen/nvptx.h"
#include "dsl/dsl.h"
#include "runtime/lowering.h"
#include "tests/support/ptxas.h"

using namespace kiln;
using namespace kiln::testing;
using Catch::Matchers::Contains;

namespace {

// The second launch reads what the first wrote, and x, which nobody writes.
Kernel chain(int launches) {
  return trace("chain", [&] {
    Dim n = dim("n");
    Tensor x = input("x", F32, {n, 64}), y = output("y", F32, {n, 64});
    Tensor sums = workspace("sums", F32, {n, 64});
    for (int i = 0; i < launches; ++i) {
      const Expr row = launch({n})[0];
      const bool last = i + 1 == launches;
      for (auto j : parallel(64)) {
        auto before = i == 0 ? Expr(x(row, j)) : sums(row, 63 - j) + x(row, j);
        last ? void(y(row, j) = before) : void(sums(row, j) = before);
      }
    }
  });
}

GpuCode code_of(const Kernel& kernel, std::string_view target) {
  return compile_ptx(lowered(compilable(kernel), Tier::Sm80, target));
}

std::string body(const GpuCode& code, size_t launch) {
  const size_t begin = code.ptx.find(".entry " + code.launches[launch].entry);
  return code.ptx.substr(begin, code.ptx.find("\n}", begin) - begin);
}

}  // namespace

TEST_CASE("a later launch of a kernel begins early and waits before it touches memory", "[nvptx]") {
  for (int launches : {2, 3}) {
    const GpuCode code = code_of(chain(launches), "sm_90");
    REQUIRE(code.launches.size() == static_cast<size_t>(launches));
    for (size_t i = 0; i < code.launches.size(); ++i) {
      INFO(launches << " launches, number " << i);
      const std::string text = body(code, i);
      const bool first = i == 0, last = i + 1 == code.launches.size();
      CHECK(code.launches[i].early == !first);
      CHECK((text.find("griddepcontrol.launch_dependents") != std::string::npos) == !last);
      const size_t waits = text.find("griddepcontrol.wait");
      CHECK((waits != std::string::npos) == !first);
      if (first) continue;
      CHECK(waits < std::min(text.find("ld.global"), text.find("st.global")));
      // sums is written while this launch may already run: not through the read-only path, which
      // x may take.
      CHECK_THAT(text, Contains("ld.global.nc.b32") && Contains("ld.global.b32"));
    }
    CHECK(assembly_fault(code.ptx, "sm_90") == "");
  }
}

TEST_CASE("launches wait for nothing where there is nothing to wait for", "[nvptx]") {
  for (auto [launches, target] : {std::pair(1, "sm_90"), {2, "sm_80"}, {2, "sm_89"}}) {
    const GpuCode code = code_of(chain(launches), target);
    CHECK(code.ptx.find("griddepcontrol") == std::string::npos);
    for (const GpuLaunch& launch : code.launches) CHECK_FALSE(launch.early);
  }
}
