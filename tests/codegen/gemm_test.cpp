// gemm: sizes, transposes, dtypes, views, special values.
#include <catch2/catch.hpp>

#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

struct Case {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, clear = false;
  DType in = F16, out = F32;
};

Attrs attributes(const Case& c) {
  Attrs attrs;
  attrs.set("transpose_a", c.transpose_a);
  attrs.set("transpose_b", c.transpose_b);
  attrs.set("clear", c.clear);
  return attrs;
}

Program program(const Case& c) {
  Program p("gemm");
  Shape sa = c.transpose_a ? Shape{c.k, c.m} : Shape{c.m, c.k};
  Shape sb = c.transpose_b ? Shape{c.n, c.k} : Shape{c.k, c.n};
  Value ga = p.tensor("a", c.in, sa), gb = p.tensor("b", c.in, sb);
  Value gc = p.tensor("c", c.out, {c.m, c.n}), gy = p.tensor("y", c.out, {c.m, c.n}, "output");
  p.launch([&] {
    Value a = p.b.alloc(Space::Shared, c.in, sa), b = p.b.alloc(Space::Shared, c.in, sb);
    Value acc = p.b.alloc(Space::Fragment, c.out, {c.m, c.n});
    p.copy(ga, a);
    p.copy(gb, b);
    p.copy(gc, acc);
    p.b.emit(OpCode::Gemm, {a, b, acc}, attributes(c));
    p.copy(acc, gy);
  });
  return p;
}

void check_case(const Case& c, Check check = {}) {
  INFO("m " << c.m << " n " << c.n << " k " << c.k << " ta " << c.transpose_a << " tb "
            << c.transpose_b << " clear " << c.clear << " " << name(c.in) << " " << name(c.out));
  check.options.seed = random_seed();
  CHECK(check_program(program(c).kernel, check) == "");
}

}  // namespace

TEST_CASE("gemm of random sizes", "[gemm]") {
  std::mt19937_64 random(random_seed());
  auto size = [&] { return std::uniform_int_distribution<int64_t>(1, 70)(random); };
  auto coin = [&] { return std::bernoulli_distribution(0.5)(random); };
  for (int i = 0; i < 24; ++i) check_case({size(), size(), size(), coin(), coin(), coin()});
}

TEST_CASE("gemm at the edges of blocks", "[gemm]") {
  for (bool transpose : {false, true}) {
    check_case({1, 1, 1, transpose, transpose});
    check_case({1, 128, 64, false, transpose});
    check_case({64, 1, 128, transpose, transpose});
    check_case({16, 48, 300, transpose, transpose});  // several blocks of k
    check_case({16, 48, 300, transpose, transpose, true});
    check_case({2, 130, 257, transpose, transpose, true});
    check_case({67, 33, 16, transpose, transpose});
  }
}

TEST_CASE("gemm of every dtype", "[gemm]") {
  for (bool transpose : {false, true}) {
    for (DType in : {F16, BF16, F32, F64, E4M3, E5M2})
      check_case({17, 21, 19, transpose, transpose, false, in, F32});
    check_case({17, 21, 19, transpose, transpose, false, F64, F64});
    for (DType in : {I8, U8}) {
      Check check;
      check.options.high = in == I8 ? 127 : 255;
      check.options.low = -128;
      check_case({17, 37, 19, transpose, transpose, false, in, I32}, check);
    }
  }
}

TEST_CASE("gemm of real numbers and special values", "[gemm]") {
  Check check;
  check.options.integers = false;
  check.tolerance = 1e-5;  // without fma each step rounds twice
  check_case({40, 40, 64, false, true}, check);
  check.options.specials = 0.02;
  check_case({20, 40, 30, false, false}, check);
}

TEST_CASE("an infinity in the accumulator stays", "[gemm]") {
  Program p = program({5, 7, 9});
  RandomBindings data(p.kernel);
  data.fill("c", [](const Shape&) { return -std::numeric_limits<double>::infinity(); });
  for (const Level& level : levels()) {
    RandomBindings run = data;
    level.compile(p.kernel)(run.bindings());
    CHECK(run.at("y", {4, 6}).f == -std::numeric_limits<double>::infinity());
  }
}

TEST_CASE("gemm on views of tiles", "[gemm]") {
  // Inside, sticking out at both ends, and at an index known only at run time.
  for (int64_t row : {0, 3, -2, 20}) {
    for (bool transpose : {false, true}) {
      Case c{9, 11, 13, transpose, transpose};
      Program p("views");
      Value ga = p.tensor("a", F16, {24, 24}), gb = p.tensor("b", F16, {2, 24, 24});
      Value gc = p.tensor("c", F32, {9, 11}), gy = p.tensor("y", F32, {9, 11}, "output");
      Value at = p.tensor("at", I32, {2});
      p.launch([&] {
        Value a = p.b.alloc(Space::Shared, F16, {24, 24});
        Value b = p.b.alloc(Space::Shared, F16, {2, 24, 24});
        Value acc = p.b.alloc(Space::Fragment, F32, {9, 11});
        p.copy(ga, a);
        p.copy(gb, b);
        p.copy(gc, acc);
        Value unknown = p.b.load(at, {p.index(0)});
        Value va = p.b.slice(a, {p.index(row), unknown}, transpose ? Shape{13, 9} : Shape{9, 13});
        Value vb = p.b.slice(b, {p.index(1), unknown, p.index(row)},
                             transpose ? Shape{1, 11, 13} : Shape{1, 13, 11});
        p.b.emit(OpCode::Gemm, {va, vb, acc}, attributes(c));
        p.copy(acc, gy);
      });
      INFO("row " << row << " transpose " << transpose);
      Check check;
      check.options.seed = random_seed();
      CHECK(check_program(p.kernel, check) == "");
    }
  }
}
