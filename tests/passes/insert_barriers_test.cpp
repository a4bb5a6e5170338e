// No two threads conflict after insert_barriers, and no barrier is there for nothing: found by
// following the ways a launch may run (race_check.h).
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/passes.h"
#include "passes/pipeline.h"
#include "tests/passes/race_check.h"
#include "tests/passes/shared_programs.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;
using testing::RaceCheck;
using testing::SharedProgram;

constexpr uint64_t kPrograms = 300;
constexpr int kTraces = 300;  // of a random program

std::string races_of_mutants(const Kernel& kernel) {
  std::string unseen;
  testing::for_each_mutant(kernel, [&](const Kernel& mutant, const std::string& what) {
    if (RaceCheck(mutant).find().empty()) unseen += what + "\n";
  });
  return unseen;
}

Kernel lowered(uint64_t seed) {
  Kernel kernel = SharedProgram::make(seed);
  issue_copies_early(kernel);
  plan_shared_memory(kernel);
  insert_barriers(kernel);
  return kernel;
}

int64_t count_of(const Kernel& kernel, OpCode code) {
  int64_t count = 0;
  walk(kernel, kernel.body, [&](OpId id) { count += kernel.op(id).code == code; });
  return count;
}

TEST_CASE("the race check sees every missing barrier and wait of the files, and nothing else") {
  int files = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path(KILN_TESTS_DIR) / "files" / "insert_barriers")) {
    INFO(entry.path().filename().string());
    std::ifstream in(entry.path());
    std::stringstream text;
    text << in.rdbuf();
    Kernel kernel = parse(text.str(), entry.path().filename().string());
    CHECK(RaceCheck(kernel).find() != "");
    insert_barriers(kernel);
    CHECK(RaceCheck(kernel).find() == "");
    CHECK(races_of_mutants(kernel) == "");
    ++files;
  }
  CHECK(files >= 6);
}

TEST_CASE("random programs have no races") {
  int64_t barriers = 0, waits = 0, pending = 0;
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const Kernel kernel = lowered(seed);
    const std::string race = RaceCheck(kernel, kTraces).find();
    INFO("seed " << seed);
    if (!race.empty()) FAIL_CHECK(race << "\n" << print(kernel));
    REQUIRE_NOTHROW(verify(kernel, IrStage::Lowered));
    barriers += count_of(kernel, OpCode::Barrier);
    waits += count_of(kernel, OpCode::WaitCopies);
    walk(kernel, kernel.body, [&](OpId id) {
      const Op& op = kernel.op(id);
      if (op.code == OpCode::WaitCopies) pending += op.integer("pending") > 0;
    });
  }
  CHECK(barriers > waits);
  CHECK(waits > static_cast<int64_t>(kPrograms));
  CHECK(pending > static_cast<int64_t>(kPrograms) / 10);
}

TEST_CASE("a missing barrier of a random program is seen") {
  int missing = 0, seen = 0;
  for (uint64_t seed = 1; seed <= kPrograms / 10; ++seed)
    testing::for_each_mutant(lowered(seed), [&](const Kernel& mutant, const std::string&) {
      ++missing;
      seen += !RaceCheck(mutant, kTraces).find().empty();
    });
  INFO(seen << " of " << missing);
  CHECK(missing > 100);
  CHECK(seen * 100 >= missing * 97);  // not all: one on a rare path, or one that is too many
}

TEST_CASE("inserting twice inserts nothing new") {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    INFO("seed " << seed);
    Kernel kernel = lowered(seed);
    const std::string once = print(kernel);
    insert_barriers(kernel);
    CHECK(print(kernel) == once);
  }
}

TEST_CASE("passes that run on what synchronises keep it free of races") {
  for (uint64_t seed = 1; seed <= kPrograms / 3; ++seed)
    for (const char* pass :
         {"simplify", "hoist_invariants", "common_subexpressions", "dead_code"}) {
      INFO(pass << ", seed " << seed);
      Kernel kernel = lowered(seed);
      pass_named(pass).run(kernel);
      CHECK(RaceCheck(kernel, kTraces).find() == "");
    }
}

// Takes a moment, not minutes: the work grows with the number of ops, not with a power of it.
TEST_CASE("long and deep launches") {
  std::string body = "copy %s, %f\ncopy %f, %s\n", deep = body;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += body;
  for (int i = 0; i < 40; ++i)
    deep =
        "for %zero, %b, %one do |%i" + std::to_string(i) + ": i32| {\n" + deep + "copy %f, %s\n}\n";
  const std::string head = R"ir(kernel @k {
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    %zero = const {value = 0} : i32
    %s = alloc {layout = "[16] offset (1) (2) (4) (8)", offset = 0} : shared f32[16]
    %f = alloc : fragment f32[16]
)ir";
  Kernel kernel = parse(head + text + deep + "}\n}\n");
  const auto start = std::chrono::steady_clock::now();
  insert_barriers(kernel);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  CHECK(took.count() < 2);
  CHECK(count_of(kernel, OpCode::Barrier) > 6000);
}

}  // namespace
}  // namespace kiln
