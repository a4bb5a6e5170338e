// Random programs: legal, the same for a seed, and with one result in whatever order.
#include "tests/differential/generator.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "ir/interp.h"
#include "ir/print.h"
#include "ir/verify.h"
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
