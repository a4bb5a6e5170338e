// Bounds of scalars, also those that a condition gives.
#include "ir/ranges.h"

#include <catch2/catch.hpp>

#include "ir/parse.h"
#include "ir/walk.h"

using namespace kiln;

namespace {

std::string str(Interval a) {
  return std::to_string(a.low) + " … " + std::to_string(a.high);
}

// A count of at most 8, a loop over so many, the index after its own, and conditions.
struct Example {
  explicit Example(const std::string& condition)
      : kernel(parse(R"(kernel @k {
  %n = dim {name = "n"} : i32
  %x = tensor {name = "x", role = output} : tensor f32[8]
  %one = const {value = 1} : i32
  launch %one do |%b: i32| {
    %zero = const {value = 0} : i32
    %eight = const {value = 8} : i32
    %end = min %n, %eight : i32
    for %zero, %end, %one do |%i: i32| {
      %next = add %i, %one : i32
      %in = compare %next, %end {kind = lt} : bool
      %c = )" + condition +
                         R"( : bool
      if %c do {
      }
    }
  }
})",
                     "test.tile")),
        ranges(kernel) {
    walk(kernel, kernel.body, [&](OpId id) {
      const Op& op = kernel.op(id);
      if (op.code == OpCode::Add) next = op.result;
      if (op.code == OpCode::Min) end = op.result;
      if (op.code == OpCode::If) condition_ = op.operands[0];
    });
  }
  // Of `value` where the condition holds.
  std::string where(Value value) {
    const std::string before = str(ranges.of(value));
    Ranges::Known known = ranges.assume(condition_);
    const std::string there = str(ranges.of(value));
    ranges.restore(std::move(known));
    CHECK(str(ranges.of(value)) == before);
    return there;
  }

  Kernel kernel;
  Ranges ranges;
  Value next, end;

 private:
  Value condition_;
};

}  // namespace

TEST_CASE("ranges: of indices and of what is counted from them") {
  Example example("compare %next, %end {kind = lt}");
  CHECK(str(example.ranges.of(example.next)) == "1 … 8");
  CHECK(str(example.ranges.of(example.end)) == "0 … 8");
}

TEST_CASE("ranges: where a condition holds") {
  const auto next = [](const std::string& condition) {
    Example example(condition);
    return example.where(example.next);
  };
  const auto end = [](const std::string& condition) {
    Example example(condition);
    return example.where(example.end);
  };
  CHECK(next("compare %next, %end {kind = lt}") == "1 … 7");
  CHECK(end("compare %next, %end {kind = lt}") == "2 … 8");
  CHECK(next("compare %end, %next {kind = gt}") == "1 … 7");
  CHECK(next("compare %next, %end {kind = le}") == "1 … 8");
  CHECK(end("compare %next, %end {kind = le}") == "1 … 8");
  CHECK(next("compare %next, %end {kind = ge}") == "1 … 8");
  CHECK(end("compare %next, %end {kind = gt}") == "0 … 7");
  CHECK(end("compare %next, %end {kind = eq}") == "1 … 8");
  CHECK(next("compare %next, %end {kind = ne}") == "1 … 8");
  CHECK(next("compare %next, %one {kind = eq}") == "1 … 1");
  CHECK(next("and %in, %in") == "1 … 7");
  CHECK(next("or %in, %in") == "1 … 8");
  // What cannot be does not run; nothing is concluded from it.
  CHECK(next("compare %next, %zero {kind = lt}") == "1 … 8");
}
