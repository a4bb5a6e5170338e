// pipelined ≡ serial: whatever the body, the stages and the trips, a pipelined or selected loop
// does what the serial loop does, bit for bit.
#include "tests/codegen/pipelined_programs.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "ir/verify.h"
#include "passes/pipeline.h"
#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

// Interprets the body with serial loops; the pipelined ones, interpreted and at every level, must
// give the same.
std::string difference(const PipelinedBody& body, const std::vector<Variant>& variants,
                       const std::vector<int64_t>& trips) {
  const Kernel serial = pipelined_program(body, variants, true);
  const Kernel pipelined = pipelined_program(body, variants, false);
  Kernel lowered = pipelined;
  if (on_host())
    run_passes(lowered, pipeline_for(Tier::Host), {.verify_each = true, .after_each = {}});
  std::vector<Run> runs = {[&](const Bindings& bindings) { interpret(pipelined, bindings); }};
  for (const Level& level : levels()) runs.push_back(level.compile(lowered));
  for (int64_t n : trips) {
    RandomOptions options;
    options.seed = random_seed() + static_cast<uint64_t>(n);
    options.low = -1;
    options.high = 8;
    options.padded = n % 2 != 0;  // else rows are aligned, and copied asynchronously
    RandomBindings expected(serial, {{"n", n}}, {}, options);
    const RandomBindings fresh = expected;
    interpret(serial, expected.bindings());
    for (size_t i = 0; i < runs.size(); ++i) {
      RandomBindings actual = fresh;
      runs[i](actual.bindings());
      std::string problem = actual.damage();
      if (problem.empty()) problem = actual.difference(expected);
      if (!problem.empty())
        return fmt::format("{} trips {}: {}", i == 0 ? "interpreter" : levels()[i - 1].name, n,
                           problem);
    }
  }
  return "";
}

const std::vector<Variant> kAllStages = {{0}, {1}, {2}, {3}, {4}};

// Trips 0, 1, 2 and stages − 1 … stages + 2, known while tracing.
std::vector<Variant> constant_trips(int stages) {
  std::vector<int64_t> trips = {0, 1, 2};
  for (int more = -1; more <= 2; ++more) trips.push_back(std::max(0, stages + more));
  std::sort(trips.begin(), trips.end());
  trips.erase(std::unique(trips.begin(), trips.end()), trips.end());
  std::vector<Variant> variants;
  for (int64_t n : trips) variants.push_back({stages, n});
  return variants;
}

}  // namespace

TEST_CASE("pipelined is serial, for any stages and trips", "[pipelined][long]") {
  for (const PipelinedBody& body : pipelined_bodies()) {
    INFO(body.name);
    CHECK(difference(body, kAllStages, {0, 1, 2, 3, 4, 5, 6, 8}) == "");
  }
}

TEST_CASE("pipelined is serial, for trips known while tracing", "[pipelined]") {
  for (const char* name : {"add_then_copy", "gemm_of_two_copies", "read_after_the_loop",
                           "copies_of_what_copies_wrote", "nested"})
    for (int stages : {0, 1, 2, 3, 4})
      for (const PipelinedBody& body : pipelined_bodies()) {
        if (body.name != name) continue;
        INFO(body.name << " stages " << stages);
        CHECK(difference(body, constant_trips(stages), {0}) == "");
      }
}

TEST_CASE("selected is serial with a test, for any stages and trips", "[pipelined]") {
  for (const PipelinedBody& body : selected_bodies()) {
    INFO(body.name);
    CHECK(difference(body, kAllStages, {0, 1, 2, 3, 5, 8, 12}) == "");
  }
}

// T10 by its numbers: a[k] = k + 1.
TEST_CASE("a tile that is read before it is filled again (T10)", "[pipelined]") {
  const auto& bodies = pipelined_bodies();
  const auto body = std::find_if(bodies.begin(), bodies.end(),
                                 [](const auto& one) { return one.name == "add_then_copy"; });
  const Kernel kernel = pipelined_program(*body, kAllStages, false);
  Kernel lowered = kernel;
  if (on_host()) run_passes(lowered, pipeline_for(Tier::Host));
  for (const Level& level : levels()) {
    const Run run = level.compile(lowered);
    for (int64_t n : {0, 1, 2, 3, 8}) {
      RandomBindings bindings(kernel, {{"n", n}});
      bindings.fill("a", [](const Shape& index) { return static_cast<double>(index[0] + 1); });
      run(bindings.bindings());
      // 100 + 1 + … + 7 = 128
      const int64_t expected = n == 0 ? 0 : 100 + n * (n - 1) / 2;
      for (int64_t v = 0; v < 5; ++v)
        for (int64_t i = 0; i < kRows * kColumns; ++i) {
          INFO(level.name << ", stages " << v << ", trips " << n);
          REQUIRE(bindings.at("y", {v, 0, i / kColumns, i % kColumns}).f ==
                  static_cast<double>(expected));
        }
    }
  }
}
