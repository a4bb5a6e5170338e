// Mistakes with loops that have exits, atomics, rows by index and assertions.
#include "tests/dsl/mistakes.h"

namespace kiln {
namespace {

TEST_CASE("a loop without an exit", "[mistakes]") {
  expect_mistake_in_launch("loop: without an exit_if it would never end",
                           [](Mark& mark, const Expr&) {
                             mark();
                             loop([] { Var x = 1; });
                           });
}

TEST_CASE("exit_if in a branch of a loop", "[mistakes]") {
  expect_mistake_in_launch("keep the condition in a Var and leave in the loop's own body",
                           [](Mark& mark, const Expr& block) {
                             loop([&] {
                               when(block > 2, [&] {
                                 mark();
                                 exit_if(block == 3);
                               });
                             });
                           });
}

TEST_CASE("exit_if in a for loop", "[mistakes]") {
  expect_mistake_in_launch("exit_if: expected it directly in the body of a loop",
                           [](Mark& mark, const Expr& block) {
                             for (auto i : serial(4)) {
                               mark();
                               exit_if(i == block);
                             }
                           });
}

TEST_CASE("exit_if of a number", "[mistakes]") {
  expect_mistake_in_launch("exit_if: expected a bool, got i32", [](Mark& mark, const Expr& block) {
    loop([&] {
      mark();
      exit_if(block);
    });
  });
}

TEST_CASE("a loop in a parallel", "[mistakes]") {
  expect_mistake_in_launch("loop: stands inside a parallel", [](Mark& mark, const Expr& block) {
    for ([[maybe_unused]] auto i : parallel(4)) {
      mark();
      loop([&] { exit_if(block == 1); });
    }
  });
}

TEST_CASE("a value of a loop used after it", "[mistakes]") {
  expect_mistake_in_launch("declare a Var before that and assign to it inside",
                           [](Mark& mark, const Expr& block) {
                             Tile t = alloc_shared({4}, I32);
                             std::optional<Expr> inner;
                             loop([&] {
                               inner.emplace(block + 1);
                               exit_if(block == 1);
                             });
                             mark();
                             t(0) = *inner;
                           });
}

TEST_CASE("an atomic on a fragment", "[mistakes]") {
  expect_mistake_in_launch("store to it, or combine them with reduce", [](Mark& mark, const Expr&) {
    Tile t = alloc_fragment({8}, I32);
    for (auto i : parallel(8)) {
      mark();
      atomic_add(t(i), 1);
    }
  });
}

TEST_CASE("an atomic or of floats", "[mistakes]") {
  expect_mistake_in_launch("or: expected i32, i64, u32 or u64, got f32",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_shared({8}, F32);
                             mark();
                             atomic_or(t(0), 1);
                           });
}

TEST_CASE("an atomic with a value that does not fit", "[mistakes]") {
  expect_mistake_in_launch("atomic_add: expected i32, got f32", [](Mark& mark, const Expr& block) {
    Tile t = alloc_shared({8}, I32);
    mark();
    atomic_add(t(0), cast(block, F32));
  });
}

TEST_CASE("an atomic on an output", "[mistakes]") {
  expect_mistake("declare it inout or workspace", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor y = output("y", I32, {64});
      launch({1});
      mark();
      atomic_max(y(3), 7);
    });
  });
}

TEST_CASE("gather: rows in global memory", "[mistakes]") {
  expect_mistake("copy them to a tile first, with pad -1", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F16, {64, 32}), list = input("list", I32, {16});
      launch({1});
      Tile t = alloc_shared({16, 32}, F16);
      mark();
      gather(x, list, t);
    });
  });
}

TEST_CASE("gather: one row too few", "[mistakes]") {
  expect_mistake("'rows': expected a tile of 16 i32, one a row of 'destination'", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F16, {64, 32});
      launch({1});
      Tile t = alloc_shared({16, 32}, F16), rows = alloc_shared({15}, I32);
      mark();
      gather(x, rows, t);
    });
  });
}

TEST_CASE("scatter to another width", "[mistakes]") {
  expect_mistake("shapes differ: 'source' is 16x32 f16, 'destination' is 64x40 f16",
                 [](Mark& mark) {
                   trace("kernel", [&] {
                     Tensor y = output("y", F16, {64, 40});
                     launch({1});
                     Tile t = alloc_shared({16, 32}, F16), rows = alloc_shared({16}, I32);
                     mark();
                     scatter(t, rows, y);
                   });
                 });
}

TEST_CASE("device_assert of what is known while tracing", "[mistakes]") {
  expect_mistake_in_launch("device_assert: too narrow", [](Mark& mark, const Expr&) {
    const int columns = 8;
    device_assert(columns > 4, "fine");
    mark();
    device_assert(columns > 8, "too narrow");
  });
}

TEST_CASE("device_assert of a number", "[mistakes]") {
  expect_mistake_in_launch("device_assert: expected a bool, got i32",
                           [](Mark& mark, const Expr& block) {
                             mark();
                             device_assert(block);
                           });
}

TEST_CASE("watch of a tensor of unknown extents", "[mistakes]") {
  expect_mistake("slice it to the extents of a tile", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F16, {dim("n"), 32});
      launch({1});
      mark();
      watch(x, "x");
    });
  });
}

TEST_CASE("a Var, a loop and a branch in a parallel", "[mistakes]") {
  expect_mistake_in_launch("t(i) += x adds to an element", [](Mark& mark, const Expr&) {
    for (auto i : parallel(8)) {
      mark();
      Var sum = i;
    }
  });
  expect_mistake_in_launch("with a C++ loop over C++ numbers", [](Mark& mark, const Expr&) {
    for (auto i : parallel(8)) {
      mark();
      for (auto j : serial(4)) device_assert(i + j < 12);
    }
  });
  expect_mistake_in_launch("use select", [](Mark& mark, const Expr&) {
    for (auto i : parallel(8)) {
      mark();
      when(i < 4, [] {});
    }
  });
}

TEST_CASE("a copy that is to transpose", "[mistakes]") {
  expect_mistake_in_launch("a copy does not transpose", [](Mark& mark, const Expr&) {
    Tile a = alloc_shared({64, 32}, F16), b = alloc_shared({32, 64}, F16);
    mark();
    copy(a, b);
  });
}

}  // namespace
}  // namespace kiln
