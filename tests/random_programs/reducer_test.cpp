// The reducer leaves a handful of lines.
#include "tests/differential/reducer.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include "ir/print.h"
#include "ir/walk.h"

namespace kiln::differential {
namespace {

int lines(const Kernel& kernel) {
  const std::string text = print(kernel);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

bool any(const Kernel& kernel, const std::function<bool(const Op&)>& is) {
  bool found = false;
  walk(kernel, kernel.body, [&](OpId id) { found |= is(kernel.op(id)); });
  return found;
}

// Programs that `fails` holds for, each of which must get as short.
void check_reduces(const std::function<bool(const Kernel&)>& fails, int most_lines) {
  int found = 0;
  for (uint64_t seed = 1; found < 3; ++seed) {
    const Program program = generate(seed);
    if (!fails(program.kernel)) continue;
    ++found;
    const Program small =
        reduce(program, [&](const Program& candidate) { return fails(candidate.kernel); });
    INFO(print(small.kernel));
    CHECK(fails(small.kernel));
    CHECK(small.kernel.without.empty());
    CHECK(lines(small.kernel) <= most_lines);
  }
}

TEST_CASE("a statement that fails is left, with what it needs") {
  check_reduces(
      [](const Kernel& kernel) {
        return any(kernel, [](const Op& op) { return op.code == OpCode::Gemm; });
      },
      12);
}

TEST_CASE("a value that fails is left") {
  check_reduces(
      [](const Kernel& kernel) {
        return any(kernel, [](const Op& op) { return op.code == OpCode::FloorDiv; });
      },
      14);
}

TEST_CASE("a loop that fails keeps what fails in it") {
  check_reduces(
      [](const Kernel& kernel) {
        return any(kernel, [&](const Op& op) {
          bool has = false;
          if (op.code == OpCode::For && op.word("kind") == "pipelined")
            walk(kernel, op.regions[0],
                 [&](OpId id) { has |= kernel.op(id).code == OpCode::Copy; });
          return has;
        });
      },
      20);
}

TEST_CASE("extents and dtypes get small and plain") {
  const auto is_tile = [](const Kernel& kernel) {
    return any(kernel, [&](const Op& op) {
      return op.code == OpCode::Reduce && kernel.type(op.operands[0]).shape.size() == 2 &&
             kernel.type(op.operands[0]).shape[1] >= 4;
    });
  };
  for (uint64_t seed = 1;; ++seed) {
    const Program program = generate(seed);
    if (!is_tile(program.kernel)) continue;
    const Program small =
        reduce(program, [&](const Program& candidate) { return is_tile(candidate.kernel); });
    INFO(print(small.kernel));
    CHECK(any(small.kernel, [&](const Op& op) {
      if (op.code != OpCode::Reduce) return false;
      const Type& type = small.kernel.type(op.operands[0]);
      return type.shape[0] <= 4 && type.shape[1] < 8 && (type.dtype == F32 || type.dtype == I32);
    }));
    break;
  }
}

}  // namespace
}  // namespace kiln::differential
