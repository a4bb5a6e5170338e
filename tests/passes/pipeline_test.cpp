#include "passes/pipeline.h"

#include <catch2/catch.hpp>

#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/walk.h"

namespace kiln {
namespace {

using Catch::Matchers::Contains;

Kernel sample() {
  return parse(R"(kernel @k {
  %n = dim {name = "n"} : i32
  %y = tensor %n {name = "y", role = output} : tensor i32[?]
  launch %n do |%b: i32| {
    %one = const {value = 1} : i32
    %two = mul %b, %one : i32
    store %two, %y, %b
  }
})");
}

// Breaks the law: the first op of the launch goes, its result stays in use.
void break_it(Kernel& kernel) {
  walk(kernel, kernel.body, [&](OpId id) {
    if (kernel.op(id).code != OpCode::Launch) return;
    auto& ops = kernel.region(kernel.op(id).regions[0]).ops;
    if (!ops.empty()) ops.erase(ops.begin());
  });
}
void do_nothing(Kernel&) {}

TEST_CASE("a pass that breaks the kernel is named") {
  const Pass passes[] = {{"harmless", do_nothing, ""}, {"breaker", break_it, ""}};
  for (bool verify_each : {true, false}) {
    Kernel kernel = sample();
    try {
      run_passes(kernel, passes, {.verify_each = verify_each, .after_each = {}});
      FAIL("no error");
    } catch (const InternalError& error) {
      CHECK_THAT(error.what(), Contains("breaker") && Contains("not defined"));
    }
  }
}

TEST_CASE("a kernel that is wrong before the first pass is the user's") {
  Kernel kernel = sample();
  break_it(kernel);
  const Pass passes[] = {{"harmless", do_nothing, ""}};
  CHECK_THROWS_AS(run_passes(kernel, passes), UserError);
}

TEST_CASE("the listener hears of every pass, in order, and whether it changed anything") {
  Kernel kernel = sample();
  const Pass passes[] = {
      {"harmless", do_nothing, ""}, pass_named("simplify"), pass_named("simplify")};
  std::vector<std::pair<std::string, bool>> heard;
  std::string last;
  run_passes(kernel, passes,
             {.verify_each = false, .after_each = [&](const PassRun& run, const Kernel& now) {
                CHECK(run.milliseconds >= 0);
                heard.emplace_back(run.name, run.changed);
                last = print(now);
              }});
  CHECK(heard == std::vector<std::pair<std::string, bool>>{
                     {"harmless", false}, {"simplify", true}, {"simplify", false}});
  CHECK(last == print(kernel));
}

TEST_CASE("passes are found by name, and each says what it does") {
  for (const Pass& pass : all_passes()) {
    CHECK(pass_named(pass.name).run == pass.run);
    CHECK(!pass.summary.empty());
  }
  CHECK(std::is_sorted(all_passes().begin(), all_passes().end(),
                       [](const Pass& a, const Pass& b) { return a.name < b.name; }));
  CHECK_THROWS_WITH(pass_named("simplfy"), Contains("simplfy") && Contains("simplify"));
}

TEST_CASE("the fingerprint holds the passes in order") {
  std::string fingerprint = pipeline_fingerprint(Tier::Host);
  size_t at = 0;
  for (const Pass& pass : pipeline_for(Tier::Host)) {
    at = fingerprint.find(pass.name, at);
    REQUIRE(at != std::string::npos);
    at += pass.name.size();
  }
}

}  // namespace
}  // namespace kiln
