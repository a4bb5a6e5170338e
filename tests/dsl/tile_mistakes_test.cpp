// Mistakes with tiles: what a kernel writer gets wrong about shapes, dtypes, places.
#include "tests/dsl/mistakes.h"

namespace kiln {
namespace {

TEST_CASE("gemm: inner extents", "[mistakes]") {
  expect_mistake_in_launch("gemm: inner extents differ: a is 64x32 f16, b is 16x64 f16",
                           [](Mark& mark, const Expr&) {
                             Tile a = alloc_shared({64, 32}, F16), b = alloc_shared({16, 64}, F16);
                             Tile c = alloc_fragment({64, 64}, F32);
                             mark();
                             gemm(a, b, c);
                           });
}

TEST_CASE("gemm: a forgotten transpose", "[mistakes]") {
  expect_mistake_in_launch("did you mean transpose_b?", [](Mark& mark, const Expr&) {
    Tile a = alloc_shared({64, 128}, F16), b = alloc_shared({64, 128}, F16);
    Tile c = alloc_fragment({64, 64}, F32);
    mark();
    gemm(a, b, c, {.clear = true});
  });
}

TEST_CASE("gemm: the accumulator's dtype", "[mistakes]") {
  expect_mistake_in_launch("accumulate in f32", [](Mark& mark, const Expr&) {
    Tile a = alloc_shared({64, 64}, F16), b = alloc_shared({64, 64}, F16);
    Tile c = alloc_fragment({64, 64}, F16);
    mark();
    gemm(a, b, c);
  });
}

TEST_CASE("gemm: a tensor as operand", "[mistakes]") {
  expect_mistake("copy it to a tile first", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor a = input("a", F16, {64, 64});
      launch({1});
      Tile b = alloc_shared({64, 64}, F16), c = alloc_fragment({64, 64}, F32);
      mark();
      gemm(a, b, c);
    });
  });
}

TEST_CASE("a slice reaches over the end", "[mistakes]") {
  expect_mistake_in_launch("slice [56, 72) exceeds extent 64", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64, 64}, F16);
    mark();
    auto part = t(span(56, 16), all);
    clear(part);
  });
}

TEST_CASE("a slice starts below 0", "[mistakes]") {
  expect_mistake_in_launch("slice [-1, 15) exceeds extent 64", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64, 64}, F16);
    mark();
    clear(t(span(-1, 16), all));
  });
}

TEST_CASE("every: no such axis, the last one, no step", "[mistakes]") {
  const auto expect = [](const char* text, int axis, int step) {
    expect_mistake(text, [&](Mark& mark) {
      trace("kernel", [&] {
        Tensor x = input("x", F16, {dim("n"), 64});
        launch({1});
        mark();
        every(x, axis, step, 0, 4);
      });
    });
  };
  expect("every: axis: expected 0 to 0, got 1", 1, 2);
  expect("every: axis: expected 0 to 0, got -1", -1, 2);
  expect("every: step: expected 1 or more, got 0", 0, 0);
}

TEST_CASE("an index beyond the end, and below 0", "[mistakes]") {
  expect_mistake_in_launch("index 64 is out of range: axis 1 of shared f16[32, 64] has extent 64",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_shared({32, 64}, F16);
                             mark();
                             t(0, 64) = 1;
                           });
  expect_mistake("index -1 is out of range: axis 0 of 'x' starts at 0", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = inout("x", F32, {dim("n")});
      launch({1});
      mark();
      x(-1) = 0;
    });
  });
}

TEST_CASE("the wrong number of indices", "[mistakes]") {
  expect_mistake("'x' has 3 axes, got 2 indices", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F32, {2, 4, 8});
      launch({1});
      mark();
      auto element = x(0, 1);
    });
  });
}

TEST_CASE("an index that is not an integer", "[mistakes]") {
  expect_mistake_in_launch("an index: expected an integer, got f32", [](Mark& mark, const Expr& x) {
    Tile t = alloc_shared({64}, F32);
    auto position = cast(x, F32);
    mark();
    t(position) = 1;
  });
}

TEST_CASE("copy: extents differ", "[mistakes]") {
  expect_mistake_in_launch("shapes differ: the source is 64x32 f16, the destination 32x64 f16",
                           [](Mark& mark, const Expr&) {
                             Tile a = alloc_shared({64, 32}, F16), b = alloc_shared({32, 64}, F16);
                             mark();
                             copy(a, b);
                           });
}

TEST_CASE("copy: a tile of an extent known only at launch", "[mistakes]") {
  expect_mistake("expected constant extents", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F32, {dim("n"), 64});
      launch({1});
      Tile t = alloc_shared({64, 64}, F32);
      mark();
      copy(x(all, all), t);
    });
  });
}

TEST_CASE("reduce: dim out of range", "[mistakes]") {
  expect_mistake_in_launch("reduce_max: dim 2 of fragment f32[64, 64]",
                           [](Mark& mark, const Expr&) {
                             Tile s = alloc_fragment({64, 64}, F32), m = alloc_fragment({64}, F32);
                             mark();
                             reduce_max(s, m, 2);
                           });
}

TEST_CASE("reduce: the destination's shape", "[mistakes]") {
  expect_mistake_in_launch("destination: expected [64] or [64, 1], got [32]",
                           [](Mark& mark, const Expr&) {
                             Tile s = alloc_fragment({64, 32}, F32), m = alloc_fragment({32}, F32);
                             mark();
                             reduce_sum(s, m);
                           });
}

TEST_CASE("sort: fewer results than keys", "[mistakes]") {
  expect_mistake_in_launch("use topk for the first few", [](Mark& mark, const Expr&) {
    Tile keys = alloc_shared({8, 64}, F32), first = alloc_shared({8, 4}, F32);
    Tile positions = alloc_shared({8, 4}, I32);
    mark();
    sort(keys, first, positions);
  });
}

TEST_CASE("topk: more than there are", "[mistakes]") {
  expect_mistake_in_launch("expected [8, 64], or fewer on axis 1, got [8, 65]",
                           [](Mark& mark, const Expr&) {
                             Tile keys = alloc_shared({8, 64}, F32);
                             Tile first = alloc_shared({8, 65}, F32);
                             Tile positions = alloc_shared({8, 65}, I32);
                             mark();
                             topk(keys, first, positions);
                           });
}

TEST_CASE("topk: results in the wrong order", "[mistakes]") {
  expect_mistake_in_launch("'order': expected i32, got 8x4 f32", [](Mark& mark, const Expr&) {
    Tile keys = alloc_shared({8, 64}, F32);
    Tile first = alloc_shared({8, 4}, F32);
    Tile positions = alloc_shared({8, 4}, I32);
    mark();
    topk(keys, positions, first);
  });
}

TEST_CASE("topk: along the wrong axis", "[mistakes]") {
  expect_mistake_in_launch("topk: dim 2 of shared f32[8, 64]", [](Mark& mark, const Expr&) {
    Tile keys = alloc_shared({8, 64}, F32), first = alloc_shared({8, 4}, F32);
    Tile positions = alloc_shared({8, 4}, I32);
    mark();
    topk(keys, first, positions, 2);
  });
}

TEST_CASE("sort: values of another shape", "[mistakes]") {
  expect_mistake_in_launch("'values': expected [8, 64], got [64]", [](Mark& mark, const Expr&) {
    Tile keys = alloc_shared({8, 64}, F32), sorted = alloc_shared({8, 64}, F32);
    Tile values = alloc_shared({64}, I32), order = alloc_shared({8, 64}, I32);
    mark();
    sort(keys, values, sorted, order);
  });
}

TEST_CASE("cumsum: in place", "[mistakes]") {
  expect_mistake_in_launch("go through another tile", [](Mark& mark, const Expr&) {
    Tile x = alloc_shared({64}, F32);
    mark();
    cumsum(x, x);
  });
}

TEST_CASE("cumsum: of bools", "[mistakes]") {
  expect_mistake_in_launch("copy it to a tile of i32 first", [](Mark& mark, const Expr&) {
    Tile chosen = alloc_shared({64}, Bool), places = alloc_shared({64}, I32);
    mark();
    cumsum(chosen, places);
  });
}

TEST_CASE("cumsum: from a tensor", "[mistakes]") {
  expect_mistake("copy it to a tile first", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F32, {64});
      launch({1});
      Tile y = alloc_shared({64}, F32);
      mark();
      cumsum(x, y);
    });
  });
}

TEST_CASE("argmax: an index that is not i32", "[mistakes]") {
  expect_mistake_in_launch("'index': expected i32, got 8 i64", [](Mark& mark, const Expr&) {
    Tile x = alloc_fragment({8, 64}, F32), at = alloc_fragment({8}, I64);
    mark();
    reduce_argmax(x, at);
  });
}

TEST_CASE("argmin: dim out of range, the index's shape", "[mistakes]") {
  expect_mistake_in_launch("reduce_argmin: dim -3 of fragment f32[8, 64]",
                           [](Mark& mark, const Expr&) {
                             Tile x = alloc_fragment({8, 64}, F32), at = alloc_fragment({8}, I32);
                             mark();
                             reduce_argmin(x, at, -3);
                           });
  expect_mistake_in_launch("index: expected [64] or [1, 64], got [8]", [](Mark& mark, const Expr&) {
    Tile x = alloc_fragment({8, 64}, F32), at = alloc_fragment({8}, I32);
    mark();
    reduce_argmin(x, at, 0);
  });
}

TEST_CASE("a fragment is indexed by a shifted index", "[mistakes]") {
  expect_mistake_in_launch("is not indexed by an index of the parallel",
                           [](Mark& mark, const Expr&) {
                             Tile s = alloc_fragment({64}, F32), t = alloc_fragment({64}, F32);
                             for (auto i : parallel(64)) {
                               mark();
                               t(i) = s(i + 1);
                             }
                           });
}

TEST_CASE("a fragment is read outside of parallel", "[mistakes]") {
  expect_mistake_in_launch("outside a parallel", [](Mark& mark, const Expr&) {
    Tile s = alloc_fragment({64}, F32);
    Var x = 0.0;
    mark();
    x = s(0);
  });
}

TEST_CASE("the loop and the fragment differ in extent", "[mistakes]") {
  expect_mistake_in_launch("axis 1 of fragment f32[64, 64] is indexed by an index of extent 32",
                           [](Mark& mark, const Expr&) {
                             Tile s = alloc_fragment({64, 64}, F32);
                             for (auto [i, j] : parallel(64, 32)) {
                               mark();
                               s(i, j) = 0;
                             }
                           });
}

TEST_CASE("a variable gathers in a parallel loop", "[mistakes]") {
  expect_mistake_in_launch("use reduce to combine elements", [](Mark& mark, const Expr&) {
    Tile s = alloc_fragment({64}, F32);
    Var sum = 0.0;
    for (auto i : parallel(64)) {
      mark();
      sum += s(i);
    }
  });
}

TEST_CASE("a tile operation stands inside parallel", "[mistakes]") {
  expect_mistake_in_launch("stands inside a parallel", [](Mark& mark, const Expr&) {
    Tile s = alloc_fragment({64}, F32);
    for (auto i : parallel(64)) {
      s(i) = 0;
      mark();
      clear(s);
    }
  });
}

TEST_CASE("a tile without extent, or with a traced one", "[mistakes]") {
  expect_mistake_in_launch("expected positive constant extents", [](Mark& mark, const Expr&) {
    mark();
    alloc_shared({64, 0}, F16);
  });
  expect_mistake_in_launch("alloc_fragment: extent 0 is known only at launch",
                           [](Mark& mark, const Expr& x) {
                             mark();
                             alloc_fragment({x}, F16);
                           });
}

TEST_CASE("storing to an input, reading an output", "[mistakes]") {
  expect_mistake("writes 'x', which is an input", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F32, {64});
      launch({1});
      mark();
      x(0) = 1;
    });
  });
  expect_mistake("reads 'x', which is an output", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = output("x", F32, {64});
      launch({1});
      mark();
      x(0) += 1;
    });
  });
}

TEST_CASE("softmax: a scale that is not positive and finite", "[mistakes]") {
  for (double scale : {0.0, -0.5, 1e-60, 1e60})
    expect_mistake_in_launch("multiply s by that factor before the step",
                             [&](Mark& mark, const Expr&) {
                               mark();
                               online_softmax(64, scale);
                             });
}

TEST_CASE("softmax: shapes", "[mistakes]") {
  expect_mistake_in_launch(
      "softmax_step: 'm': expected fragment f32[64], got fragment f32[32]",
      [](Mark& mark, const Expr&) {
        Tile s = alloc_fragment({64, 16}, F32), p = alloc_fragment({64, 16}, F16);
        Tile acc = alloc_fragment({64, 16}, F32);
        OnlineSoftmax softmax = online_softmax(32, 0.125);
        mark();
        softmax.step(s, p, acc);
      });
}

TEST_CASE("selected: not a row, not a list", "[mistakes]") {
  expect_mistake("expected a row with one axis that is not 1", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor mask = input("mask", Bool, {8, 8});
      launch({1});
      mark();
      for (auto i : selected(mask(all, all))) {
      }
    });
  });
  expect_mistake("'count' goes with a list of i32", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor mask = input("mask", Bool, {8, 8});
      auto [x, y, z] = launch({8});
      mark();
      for (auto i : selected(mask(x, all), {.count = 4})) {
      }
    });
  });
}

}  // namespace
}  // namespace kiln
