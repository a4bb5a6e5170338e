// Mistakes with scalars, control flow and the kernel's interface.
#include "tests/dsl/mistakes.h"

namespace kiln {
namespace {

TEST_CASE("dtypes mix without a cast", "[mistakes]") {
  expect_mistake("add: operands are f32 and i32; cast one of them", [](Mark& mark) {
    trace("kernel", [&] {
      Expr scale = param("scale", F32);
      auto [x, y, z] = launch({4});
      mark();
      auto sum = scale + x;
    });
  });
  expect_mistake_in_launch("operands are f16 and bf16", [](Mark& mark, const Expr& x) {
    Tile a = alloc_shared({4}, F16), b = alloc_shared({4}, BF16);
    mark();
    auto product = a(x) * b(x);
  });
}

TEST_CASE("a fraction meets an integer", "[mistakes]") {
  expect_mistake_in_launch("add: the C++ number 1.5 meets i32", [](Mark& mark, const Expr& x) {
    mark();
    auto sum = x + 1.5;
  });
}

TEST_CASE("a number does not fit", "[mistakes]") {
  expect_mistake_in_launch("the C++ number 300 does not fit i8", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({4}, I8);
    mark();
    t(0) = 300;
  });
  expect_mistake_in_launch("the C++ number 100000.0 does not fit f16", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({4}, F16);
    mark();
    fill(t, 1e5);
  });
}

TEST_CASE("a store across kinds of dtype", "[mistakes]") {
  expect_mistake_in_launch("store: the element is f32, the value i32; cast the value",
                           [](Mark& mark, const Expr& x) {
                             Tile t = alloc_shared({4}, F32);
                             mark();
                             t(0) = x;
                           });
  expect_mistake_in_launch("the element is i32, the value f32", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({4}, F32);
    Var count = 0;
    mark();
    count = t(0);
  });
}

TEST_CASE("functions of the wrong dtype", "[mistakes]") {
  expect_mistake_in_launch("exp: expected f16, bf16, f32 or f64, got i32",
                           [](Mark& mark, const Expr& x) {
                             mark();
                             auto y = exp(x);
                           });
  expect_mistake_in_launch("&&: expected bools, got i32", [](Mark& mark, const Expr& x) {
    mark();
    auto y = x && x < 3;
  });
  expect_mistake_in_launch("infinity: i32 has none", [](Mark& mark, const Expr&) {
    mark();
    auto y = infinity(I32);
  });
}

TEST_CASE("when: a number as condition", "[mistakes]") {
  expect_mistake_in_launch("when: expected a bool, got i32", [](Mark& mark, const Expr& x) {
    mark();
    when(x, [] {});
  });
}

TEST_CASE("outside of a kernel", "[mistakes]") {
  const std::string sentence = "used outside a kernel; wrap the code in trace(...)";
  expect_mistake(sentence, [](Mark& mark) {
    mark();
    alloc_shared({64}, F32);
  });
  expect_mistake(sentence, [](Mark& mark) {
    mark();
    Var x = 0;
  });
  expect_mistake(sentence, [](Mark& mark) {
    std::optional<Expr> kept;
    trace("kernel", [&] {
      auto [x, y, z] = launch({1});
      kept.emplace(x);
    });
    mark();
    auto sum = *kept + 1;
  });
}

TEST_CASE("a tile and a value of another kernel", "[mistakes]") {
  std::optional<Tile> tile;
  std::optional<Expr> value;
  trace("first", [&] {
    auto [x, y, z] = launch({1});
    tile.emplace(alloc_shared({64}, F32));
    value.emplace(x + 1);
  });
  const std::string sentence = "a value of kernel 'first' is used in kernel 'kernel'";
  expect_mistake_in_launch(sentence, [&](Mark& mark, const Expr&) {
    mark();
    clear(*tile);
  });
  expect_mistake_in_launch(sentence, [&](Mark& mark, const Expr&) {
    mark();
    auto sum = *value + 1;
  });
}

TEST_CASE("an index, a value, a tile after its loop", "[mistakes]") {
  expect_mistake_in_launch("an index is used after its loop or launch has ended",
                           [](Mark& mark, const Expr&) {
                             std::optional<Expr> last;
                             for (auto i : serial(8)) last.emplace(i);
                             mark();
                             auto next = *last + 1;
                           });
  expect_mistake_in_launch("declare a Var before that", [](Mark& mark, const Expr& x) {
    std::optional<Expr> inside;
    when(x < 2, [&] { inside.emplace(x * 2); });
    mark();
    auto next = *inside + 1;
  });
  expect_mistake_in_launch("shared f32[8] is used after the loop, branch or launch that made it",
                           [](Mark& mark, const Expr&) {
                             std::optional<Tile> inside;
                             for (auto i : serial(8)) inside.emplace(alloc_shared({8}, F32));
                             mark();
                             clear(*inside);
                           });
}

TEST_CASE("leaving a traced loop", "[mistakes]") {
  const std::string sentence = "break, return or goto leaves a traced loop";
  expect_mistake_in_launch(sentence, [](Mark& mark, const Expr&) {
    mark();
    for (auto i : serial(8)) break;
  });
  expect_mistake_in_launch(sentence, [](Mark& mark, const Expr&) {
    mark();
    for (auto i : parallel(8)) return;
  });
  expect_mistake_in_launch(sentence, [](Mark& mark, const Expr&) {
    mark();
    for (auto i : pipelined(8)) goto end;
  end:
    launch({1});
  });
}

TEST_CASE("loop bounds", "[mistakes]") {
  expect_mistake_in_launch("unroll needs constant bounds", [](Mark& mark, const Expr& x) {
    mark();
    for (auto i : unroll(x)) {
    }
  });
  expect_mistake_in_launch("expected a step above 0, got 0", [](Mark& mark, const Expr&) {
    mark();
    for (auto i : serial(0, 8, 0)) {
    }
  });
  expect_mistake_in_launch("parallel: extent 1 is known only at launch",
                           [](Mark& mark, const Expr& x) {
                             mark();
                             for ([[maybe_unused]] auto [i, j] : parallel(8, x)) {
                             }
                           });
  expect_mistake_in_launch("pipelined: expected an integer, got the C++ number 2.5",
                           [](Mark& mark, const Expr&) {
                             mark();
                             for (auto i : pipelined(2.5)) {
                             }
                           });
}

TEST_CASE("the launch is missing, or in the wrong place", "[mistakes]") {
  expect_mistake("alloc_shared: no launch is open", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      alloc_shared({64}, F32);
    });
  });
  expect_mistake("kernel 'kernel' has no launch", [](Mark& mark) {
    mark();
    trace("kernel", [] { dim("n"); });
  });
  expect_mistake_in_launch("launch stands inside a loop or branch", [](Mark& mark, const Expr&) {
    for (auto i : serial(4)) {
      mark();
      launch({4});
    }
  });
  expect_mistake_in_launch("input comes after a launch", [](Mark& mark, const Expr&) {
    mark();
    input("x", F32, {64});
  });
}

TEST_CASE("the grid", "[mistakes]") {
  expect_mistake("expected 1 to 3 extents, got 4", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      launch({1, 2, 3, 4});
    });
  });
  expect_mistake_in_launch("an extent depends on what a block computes",
                           [](Mark& mark, const Expr& x) {
                             mark();
                             launch({x + 1});
                           });
}

TEST_CASE("names", "[mistakes]") {
  expect_mistake("input: the name 'q' is taken", [](Mark& mark) {
    trace("kernel", [&] {
      input("q", F16, {64});
      mark();
      input("q", F16, {64});
    });
  });
  expect_mistake("'my tensor' is not a name", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      output("my tensor", F16, {64});
    });
  });
}

TEST_CASE("a kernel can be traced after a failed one", "[mistakes]") {
  CHECK_THROWS_AS(trace("bad",
                        [] {
                          launch({1});
                          for (auto i : serial(4)) {
                            throw std::runtime_error("the user's own");
                          }
                        }),
                  std::runtime_error);
  CHECK_NOTHROW(trace("good", [] { launch({1}); }));
}

}  // namespace
}  // namespace kiln
