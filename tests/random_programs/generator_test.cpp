// Random programs: legal, the same for a seed, and with one result in whatever order.
#include "tests/differential/generator.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "ir/interp.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
#include "tests/differential/case.h"
#include "tests/differential/coverage.h"

namespace kiln::differential {
namespace {

TEST_CASE("a seed decides a program") {
  CHECK(print(generate(7).kernel) == print(generate(7).kernel));
  CHECK(print(generate(7).kernel) != print(generate(8).kernel));
}

TEST_CASE("a case is the same after it was text") {
  const Case c{generate(11), 11};
  CHECK(text_of(c).find("// seed=11") == 0);
}

TEST_CASE("the text of a case says what it does without, and how many warps it wishes for") {
  int without = 0, warps = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const Case c{generate(seed), seed};
    const Kernel again = parse(text_of(c));
    CHECK(again.without == c.program.kernel.without);
    CHECK_NOTHROW(passes_for(again, Tier::Sm80));
    without += !again.without.empty();
    for (OpId id : again.region(again.body).ops)
      warps += again.op(id).code == OpCode::Launch && again.op(id).integer("warps") > 0;
  }
  CHECK(without > 5);
  CHECK(warps > 5);
}

TEST_CASE("programs give one result, whatever comes first where nothing says so") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Case c{generate(seed), seed};
    verify(c.program.kernel);
    drop_watches(c.program.kernel);
    testing::RandomBindings forward = inputs_of(c), backward = forward;
    interpret(c.program.kernel, forward.bindings());
    interpret(c.program.kernel, backward.bindings(),
              {.reverse_blocks = true, .reverse_selected = true});
    INFO(seed);
    CHECK(forward.difference(backward, 0.0) == "");
  }
}

TEST_CASE("coverage is the same from one process to another, and misses what is not there") {
  Coverage coverage;
  for (uint64_t seed = 0; seed < 3; ++seed) coverage.add(generate(seed).kernel);
  Coverage read = Coverage::parse(coverage.text());
  CHECK(read.text() == coverage.text());
  read.add(coverage);
  CHECK(read.count("op launch") == 2 * coverage.count("op launch"));
  CHECK(coverage.count("op launch") == 3);
  Coverage empty;
  for (int i = 0; i < kJudged; ++i) empty.add(Kernel("k"));
  const std::vector<std::string> missed = empty.missed();
  for (const char* what : {"op gemm: in 0, at least 20 wanted", "share: a gemm: in 0, 40 % wanted",
                           "gemm policy=full_row: in 0, at least 20 wanted"})
    CHECK(std::find(missed.begin(), missed.end(), what) != missed.end());
}

}  // namespace
}  // namespace kiln::differential
