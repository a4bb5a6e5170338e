// The last stage's IR as PTX for sm_90a in the emulator: roles, channels, copies by tensor maps and
// wgmma give what the interpreter does, whenever what they begin is done, and nothing is amiss.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "ir/canon.h"
#include "ir/parse.h"
#include "runtime/emulator_device.h"
#include "tests/codegen/harness.h"
#include "tests/support/late_file.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr ptx::AsyncMode kModes[] = {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest,
                                     ptx::AsyncMode::Random};

Check check_of(std::map<std::string, int64_t> dims) {
  Check check;
  check.dims = std::move(dims);
  check.options.seed = random_seed();
  check.options.padded = false;  // rows as tensor maps take them
  check.tolerance = 2e-2;
  return check;
}

// The first finding, damage or difference; empty if there is none.
std::string fault(const std::string& file, const std::vector<Check>& checks) {
  setenv("KILN_CACHE", "off", 1);
  const Kernel kernel = late_kernel(KILN_TESTS_DIR, file);
  const std::unique_ptr<Executable> code = emulator_device("sm_90a").compile(canonical(kernel));
  for (const Check& check : checks)
    for (ptx::AsyncMode mode : kModes) {
      RandomBindings expected(kernel, check.dims, check.params, check.options), actual = expected;
      interpret(kernel, expected.bindings());
      ptx::Options options;
      options.async = mode;
      options.seed = check.options.seed;
      for (const ptx::Report& report : emulate(*code, actual.bindings(), options))
        if (!report.findings.empty()) return report.findings[0].text();
      std::string wrong = actual.damage();
      if (wrong.empty()) wrong = actual.difference(expected, check.tolerance);
      if (wrong.empty()) continue;
      for (const auto& [name, value] : check.dims) wrong += fmt::format(", {} = {}", name, value);
      return fmt::format("{}, mode {}", wrong, static_cast<int>(mode));
    }
  return "";
}

}  // namespace

TEST_CASE("late files in the emulator: rings, for 0 to 2·slots + 1 tiles and ragged ends",
          "[late][emulated]") {
  if (!on_host()) return;
  std::vector<Check> checks;
  for (int64_t tiles = 0; tiles <= 7; ++tiles)
    for (int64_t ragged : {0, 1, 33}) checks.push_back(check_of({{"n", 64 * tiles + ragged}}));
  CHECK(fault("copy_ring.tile", checks) == "");
}

// Each lane reads its elements of a slot and writes them again, by stmatrix: those of its
// neighbours are none of its business, whoever names the rows' addresses.
TEST_CASE("late files in the emulator: lanes that change a slot in place", "[late][emulated]") {
  if (!on_host()) return;
  std::vector<Check> checks;
  for (int64_t n : {0, 63, 130, 300}) checks.push_back(check_of({{"n", n}}));
  CHECK(fault("dead_slot.tile", checks) == "");
}

TEST_CASE("late files in the emulator: a stream with messages", "[late][emulated]") {
  if (!on_host()) return;
  std::vector<Check> checks;
  for (int64_t n = 0; n <= 9; n += 3) checks.push_back(check_of({{"n", n}, {"rows", 3}}));
  CHECK(fault("messages.tile", checks) == "");
}

TEST_CASE("late files in the emulator: gemms with a producer", "[late][emulated]") {
  if (!on_host()) return;
  std::vector<Check> checks;
  for (auto [m, n, k] : {std::tuple{64, 64, 64}, {65, 136, 200}, {100, 40, 0}})
    checks.push_back(check_of({{"m", m}, {"n", n}, {"k", k}}));
  CHECK(fault("gemm_producer.tile", checks) == "");
  checks.clear();
  for (auto [m, n, k, ctas] : {std::tuple{130, 264, 40, 1}, {300, 128, 200, 2}})
    checks.push_back(check_of({{"m", m}, {"n", n}, {"k", k}, {"ctas", ctas}}));
  CHECK(fault("gemm.tile", checks) == "");
}
