// Mistakes with numbers, functions of scalars and variables.
#include <cstdint>

#include "tests/dsl/mistakes.h"

namespace kiln {
namespace {

// An element of a tile of that dtype.
Expr of(DType dtype) {
  return alloc_shared({4}, dtype)(0);
}

TEST_CASE("bit operations of floats", "[mistakes]") {
  const std::string sentence = "expected integers or bool, got f32";
  expect_mistake_in_launch("and: " + sentence, [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = x & x;
  });
  expect_mistake_in_launch("or: " + sentence, [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = x | x;
  });
  expect_mistake_in_launch("xor: " + sentence, [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = x ^ x;
  });
  expect_mistake_in_launch("not: " + sentence, [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = ~x;
  });
}

TEST_CASE("shifts and remainders of floats", "[mistakes]") {
  expect_mistake_in_launch("shl: expected integers, got f32", [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = x << x;
  });
  expect_mistake_in_launch("shr: expected integers, got bf16", [](Mark& mark, const Expr&) {
    auto x = of(BF16);
    mark();
    auto y = x >> x;
  });
  expect_mistake_in_launch("floormod: expected integers, got f32", [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = x % x;
  });
  expect_mistake_in_launch("use div, or cast to an integer", [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = floordiv(x, x);
  });
  expect_mistake_in_launch("use div, or cast to an integer", [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = ceildiv(x, x);
  });
}

TEST_CASE("comparisons of what differs", "[mistakes]") {
  const auto of_both = [](const char* sentence, Expr (*compare)(Arg, Arg)) {
    expect_mistake_in_launch(sentence, [&](Mark& mark, const Expr& b) {
      auto x = of(F32);
      mark();
      auto y = compare(b, x);
    });
  };
  for (auto compare : {operator==, operator!=, operator<, operator<=, operator>, operator>=})
    of_both("compare: operands are i32 and f32; cast one of them", compare);
  of_both("min: operands are i32 and f32; cast one of them", min);
  of_both("max: operands are i32 and f32; cast one of them", max);
  of_both("floormod: operands are i32 and f32; cast one of them", floormod);
  of_both("&&: expected bools, got i32", logical_and);
}

TEST_CASE("arithmetic of bools", "[mistakes]") {
  const std::string sentence = "expected numbers, got bool";
  expect_mistake_in_launch("add: " + sentence, [](Mark& mark, const Expr& b) {
    mark();
    auto y = (b < 2) + (b < 3);
  });
  expect_mistake_in_launch("neg: " + sentence, [](Mark& mark, const Expr& b) {
    mark();
    auto y = -(b < 2);
  });
  expect_mistake_in_launch("max: " + sentence, [](Mark& mark, const Expr& b) {
    mark();
    auto y = max(b < 2, b < 3);
  });
  expect_mistake_in_launch("abs: " + sentence, [](Mark& mark, const Expr& b) {
    mark();
    auto y = abs(b < 2);
  });
}

TEST_CASE("functions of what has none", "[mistakes]") {
  const std::string sentence = ": expected f16, bf16, f32 or f64, got ";
  const std::pair<const char*, Expr (*)(Arg)> functions[] = {
      {"exp", exp},     {"exp2", exp2}, {"log", log},     {"log2", log2}, {"sqrt", sqrt},
      {"rsqrt", rsqrt}, {"tanh", tanh}, {"floor", floor}, {"ceil", ceil}};
  for (const auto& [name, function] : functions)
    for (const auto& [dtype, text] : {std::pair(I32, "i32"), std::pair(E4M3, "e4m3")})
      expect_mistake_in_launch(name + sentence + text,
                               [&, dtype = dtype, function = function](Mark& mark, const Expr&) {
                                 auto x = of(dtype);
                                 mark();
                                 auto y = function(x);
                               });
}

TEST_CASE("fma of halves", "[mistakes]") {
  expect_mistake_in_launch("fma: expected f32 or f64, got f16", [](Mark& mark, const Expr&) {
    auto x = of(F16);
    mark();
    auto y = fma(x, x, x);
  });
}

TEST_CASE("a traced and a C++ value in &&, ||, !", "[mistakes]") {
  expect_mistake_in_launch("||: expected bools, got f32", [](Mark& mark, const Expr& b) {
    auto x = of(F32);
    mark();
    auto y = x || b < 2;
  });
}

TEST_CASE("select: a number as condition, choices that differ", "[mistakes]") {
  expect_mistake_in_launch("select: the condition: expected bools, got i32",
                           [](Mark& mark, const Expr& b) {
                             mark();
                             auto y = select(b, 1, 2);
                           });
  expect_mistake_in_launch("select: operands are i32 and f32", [](Mark& mark, const Expr& b) {
    auto x = of(F32);
    mark();
    auto y = select(b < 2, b, x);
  });
}

TEST_CASE("infinity where there is none", "[mistakes]") {
  expect_mistake_in_launch("infinity: e4m3 takes no infinity", [](Mark& mark, const Expr&) {
    mark();
    auto y = infinity(E4M3);
  });
}

TEST_CASE("C++ numbers that fit nothing", "[mistakes]") {
  expect_mistake_in_launch("a C++ number is too large for i64", [](Mark& mark, const Expr& b) {
    mark();
    auto y = b + UINT64_MAX;
  });
  expect_mistake_in_launch("the C++ number 5000000000 does not fit i32",
                           [](Mark& mark, const Expr& b) {
                             mark();
                             auto y = b + 5'000'000'000;
                           });
  expect_mistake_in_launch("the C++ number -1 does not fit u32", [](Mark& mark, const Expr&) {
    auto x = of(U32);
    mark();
    auto y = x + -1;
  });
  expect_mistake_in_launch("a C++ bool meets f32", [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    auto y = x + true;
  });
}

TEST_CASE("signs mix", "[mistakes]") {
  expect_mistake_in_launch("compare: operands are u32 and i32", [](Mark& mark, const Expr& b) {
    auto x = of(U32);
    mark();
    auto y = x < b;
  });
}

TEST_CASE("variables: another kind of value", "[mistakes]") {
  expect_mistake_in_launch("the element is i32, the value f32", [](Mark& mark, const Expr&) {
    auto x = of(F32);
    mark();
    Var sum(I32, x);
  });
  expect_mistake_in_launch("div: operands are i32 and f32", [](Mark& mark, const Expr&) {
    auto x = of(F32);
    Var count = 8;
    mark();
    count /= x;
  });
  expect_mistake_in_launch("the C++ number 0.5 meets i32", [](Mark& mark, const Expr&) {
    Var count = 8;
    mark();
    count *= 0.5;
  });
}

TEST_CASE("a variable of another kernel, and before the launch", "[mistakes]") {
  std::optional<Var> kept;
  trace("first", [&] {
    launch({1});
    kept.emplace(1);
  });
  expect_mistake_in_launch("a value of kernel 'first' is used in kernel 'kernel'",
                           [&](Mark& mark, const Expr& b) {
                             mark();
                             auto y = b + *kept;
                           });
  expect_mistake("Var: no launch is open", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      Var x = 1;
    });
  });
}

TEST_CASE("a variable assigned in a parallel", "[mistakes]") {
  expect_mistake_in_launch("so its iterations would all write one element",
                           [](Mark& mark, const Expr& b) {
                             Var last = 0;
                             for (auto i : parallel(8)) {
                               mark();
                               last = i + b;
                             }
                           });
}

}  // namespace
}  // namespace kiln
