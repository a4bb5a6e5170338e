// Mistakes with each operation on whole tiles and each loop that tile_mistakes_test.cpp and
// control_mistakes_test.cpp leave out.
#include "tests/dsl/mistakes.h"

namespace kiln {
namespace {

TEST_CASE("copy to itself, to an input, with a pad that is no value", "[mistakes]") {
  expect_mistake_in_launch("go through another tile", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64, 64}, F16);
    mark();
    copy(t(span(0, 32), all), t(span(32, 32), all));
  });
  expect_mistake("copy: writes 'x', which is an input", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F16, {64});
      launch({1});
      Tile t = alloc_shared({64}, F16);
      mark();
      copy(t, x);
    });
  });
  expect_mistake("copy: pad: expected a value of i32, got -inf", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", I32, {64});
      launch({1});
      Tile t = alloc_shared({64}, F32);
      mark();
      copy(x, t, {.pad = -INFINITY});
    });
  });
}

TEST_CASE("fill and clear", "[mistakes]") {
  expect_mistake_in_launch("fill: the element is f32, the value i32; cast the value",
                           [](Mark& mark, const Expr& block) {
                             Tile t = alloc_shared({64}, F32);
                             mark();
                             fill(t, block);
                           });
  expect_mistake("fill: writes 'x', which is an input", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F16, {64});
      launch({1});
      mark();
      clear(x);
    });
  });
  expect_mistake("fill: 'destination': expected constant extents", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = output("x", F16, {dim("n")});
      launch({1});
      mark();
      clear(x);
    });
  });
}

TEST_CASE("gemm: c that is shared, a of one axis, a that is c, dtypes that differ", "[mistakes]") {
  expect_mistake_in_launch("gemm: 'c': expected a fragment, got shared f32[64, 64]",
                           [](Mark& mark, const Expr&) {
                             Tile a = alloc_shared({64, 64}, F16), c = alloc_shared({64, 64}, F32);
                             mark();
                             gemm(a, a, c);
                           });
  expect_mistake_in_launch("gemm: 'a': expected a matrix, got shared f16[64]",
                           [](Mark& mark, const Expr&) {
                             Tile a = alloc_shared({64}, F16), b = alloc_shared({64, 64}, F16);
                             Tile c = alloc_fragment({64, 64}, F32);
                             mark();
                             gemm(a, b, c);
                           });
  expect_mistake_in_launch("gemm: writes fragment f32[64, 64] and also uses it as another operand",
                           [](Mark& mark, const Expr&) {
                             Tile b = alloc_shared({64, 64}, F32);
                             Tile c = alloc_fragment({64, 64}, F32);
                             mark();
                             gemm(c, b, c);
                           });
  expect_mistake_in_launch("gemm: a and b differ in dtype: a is f16, b is bf16",
                           [](Mark& mark, const Expr&) {
                             Tile a = alloc_shared({64, 64}, F16), b = alloc_shared({64, 64}, BF16);
                             Tile c = alloc_fragment({64, 64}, F32);
                             mark();
                             gemm(a, b, c);
                           });
  expect_mistake_in_launch("gemm: c: expected 64x32, got 64x64 f32", [](Mark& mark, const Expr&) {
    Tile a = alloc_shared({64, 64}, F16), b = alloc_shared({64, 32}, F16);
    Tile c = alloc_fragment({64, 64}, F32);
    mark();
    gemm(a, b, c);
  });
}

TEST_CASE("reduce: bools, bits of floats, dtypes that differ, a tensor", "[mistakes]") {
  expect_mistake_in_launch("use and, or, xor for bool", [](Mark& mark, const Expr&) {
    Tile s = alloc_fragment({8, 8}, Bool), m = alloc_fragment({8}, Bool);
    mark();
    reduce_sum(s, m);
  });
  using Reduce = void (*)(const Storage&, const Storage&, int, bool, Loc);
  for (const auto& [function, kind] :
       {std::pair<Reduce, const char*>(reduce_and, "and"), {reduce_or, "or"}, {reduce_xor, "xor"}})
    expect_mistake_in_launch(std::string(kind) + ": expected integers or bool, got 8x8 f32",
                             [&, function = function](Mark& mark, const Expr&) {
                               Tile s = alloc_fragment({8, 8}, F32), m = alloc_fragment({8}, F32);
                               mark();
                               function(s, m, 1, true, Loc::here());
                             });
  for (Reduce function : {Reduce(reduce_max), Reduce(reduce_min), Reduce(reduce_absmax)})
    expect_mistake_in_launch("dtypes differ: the source is 8x8 f32, the destination 8 i32",
                             [&](Mark& mark, const Expr&) {
                               Tile s = alloc_fragment({8, 8}, F32), m = alloc_fragment({8}, I32);
                               mark();
                               function(s, m, 1, true, Loc::here());
                             });
  expect_mistake("copy it to a tile first", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F32, {8, 8});
      launch({1});
      Tile m = alloc_fragment({8}, F32);
      mark();
      reduce_sum(x, m);
    });
  });
}

TEST_CASE("argmax of bools", "[mistakes]") {
  expect_mistake_in_launch("'source': expected numbers, got 8x8 bool", [](Mark& mark, const Expr&) {
    Tile s = alloc_fragment({8, 8}, Bool), at = alloc_fragment({8}, I32);
    mark();
    reduce_argmax(s, at);
  });
}

TEST_CASE("cumsum: another shape, another kind of dtype", "[mistakes]") {
  expect_mistake_in_launch("'destination': expected [8, 8], got [8]", [](Mark& mark, const Expr&) {
    Tile s = alloc_shared({8, 8}, F32), t = alloc_shared({8}, F32);
    mark();
    cumsum(s, t);
  });
  expect_mistake_in_launch("'destination': expected f32, got 8 i32", [](Mark& mark, const Expr&) {
    Tile s = alloc_shared({8}, F32), t = alloc_shared({8}, I32);
    mark();
    cumsum(s, t);
  });
}

TEST_CASE("gather: from a fragment, with a pad that is no value; scatter: indices of i64",
          "[mistakes]") {
  expect_mistake_in_launch("'source': expected a tensor or shared tile",
                           [](Mark& mark, const Expr&) {
                             Tile s = alloc_fragment({8, 8}, F32), t = alloc_shared({4, 8}, F32),
                                  rows = alloc_shared({4}, I32);
                             mark();
                             gather(s, rows, t);
                           });
  expect_mistake_in_launch("gather: pad: expected a value of u8, got -1", [](Mark& mark,
                                                                             const Expr&) {
    Tile s = alloc_shared({8, 8}, U8), t = alloc_shared({4, 8}, F32), rows = alloc_shared({4}, I32);
    mark();
    gather(s, rows, t, {.pad = -1});
  });
  expect_mistake_in_launch("'rows': expected a tile of 4 i32", [](Mark& mark, const Expr&) {
    Tile s = alloc_shared({4, 8}, F32), t = alloc_shared({8, 8}, F32),
         rows = alloc_shared({4}, I64);
    mark();
    scatter(s, rows, t);
  });
}

TEST_CASE("watch in a parallel, of an output", "[mistakes]") {
  expect_mistake_in_launch("watch: stands inside a parallel", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({8}, F32);
    for ([[maybe_unused]] auto i : parallel(8)) {
      mark();
      watch(t, "t");
    }
  });
  expect_mistake("watch: reads 'y', which is an output", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor y = output("y", F32, {8});
      launch({1});
      mark();
      watch(y, "y");
    });
  });
}

TEST_CASE("atomics: dtypes without, an index beyond the end, a fraction", "[mistakes]") {
  using Atomic = Expr (*)(const Element&, Arg, Loc);
  for (const auto& [function, kind] : {std::pair<Atomic, const char*>(atomic_add, "add"),
                                       {atomic_max, "max"},
                                       {atomic_min, "min"},
                                       {atomic_exchange, "exchange"}})
    expect_mistake_in_launch(
        std::string(kind) + ": expected f32, f64, i32, i64, u32 or u64, got f16",
        [&, function = function](Mark& mark, const Expr&) {
          Tile t = alloc_shared({8}, F16);
          auto element = t(0);
          mark();
          function(element, 1, Loc::here());
        });
  for (const auto& [function, kind] :
       {std::pair<Atomic, const char*>(atomic_and, "and"), {atomic_xor, "xor"}})
    expect_mistake_in_launch(std::string(kind) + ": expected i32, i64, u32 or u64, got i8",
                             [&, function = function](Mark& mark, const Expr&) {
                               Tile t = alloc_shared({8}, I8);
                               auto element = t(0);
                               mark();
                               function(element, 1, Loc::here());
                             });
  expect_mistake_in_launch("index 8 is out of range", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({8}, I32);
    mark();
    atomic_add(t(8), 1);
  });
  expect_mistake_in_launch("atomic_add: the C++ number 0.5 meets i32", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({8}, I32);
    mark();
    atomic_add(t(0), 0.5);
  });
}

TEST_CASE("loops: bounds of floats, steps, stages", "[mistakes]") {
  expect_mistake_in_launch("serial: expected an integer, got f32", [](Mark& mark, const Expr& b) {
    auto end = cast(b, F32);
    mark();
    for (auto i : serial(end)) {
    }
  });
  expect_mistake_in_launch("expected a step above 0, got -1", [](Mark& mark, const Expr&) {
    mark();
    for (auto i : unroll(8, 0, -1)) {
    }
  });
  expect_mistake_in_launch("stages: expected 0 or more, got -1", [](Mark& mark, const Expr&) {
    mark();
    for (auto i : pipelined(8, {.stages = -1})) {
    }
  });
  expect_mistake_in_launch("expected extents of 1 or more, got [0]", [](Mark& mark, const Expr&) {
    mark();
    for ([[maybe_unused]] auto i : parallel(0)) {
    }
  });
  expect_mistake_in_launch("parallel: stands inside a parallel", [](Mark& mark, const Expr&) {
    for ([[maybe_unused]] auto i : parallel(8)) {
      mark();
      for ([[maybe_unused]] auto j : parallel(8)) {
      }
    }
  });
  expect_mistake_in_launch("use select for a condition", [](Mark& mark, const Expr&) {
    for (auto i : parallel(8)) {
      mark();
      when(i < 4, [] {});
    }
  });
  expect_mistake("serial: no launch is open", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      for (auto i : serial(8)) {
      }
    });
  });
}

TEST_CASE("while_: a number as condition", "[mistakes]") {
  expect_mistake_in_launch("!: expected bools, got i32", [](Mark& mark, const Expr&) {
    Var left = 8;
    mark();
    while_([&] { return Expr(left); }, [&] { left -= 1; });
  });
}

TEST_CASE("selected: a row of floats, in a fragment, written in its loop; a limit of floats",
          "[mistakes]") {
  expect_mistake_in_launch("expected a row of bool or i8 (a mask) or i32 (a list)",
                           [](Mark& mark, const Expr&) {
                             Tile row = alloc_shared({8}, F32);
                             mark();
                             for (auto i : selected(row)) {
                             }
                           });
  expect_mistake_in_launch("expected a row in global or shared memory",
                           [](Mark& mark, const Expr&) {
                             Tile row = alloc_fragment({8}, I32);
                             mark();
                             for (auto i : selected(row)) {
                             }
                           });
  expect_mistake_in_launch("writes the row that the selected loop around it reads",
                           [](Mark& mark, const Expr&) {
                             Tile row = alloc_shared({8}, I32);
                             for (auto i : selected(row)) {
                               mark();
                               row(i) = -1;
                             }
                           });
  expect_mistake_in_launch("selected: limit: expected an integer, got the C++ number 1.5",
                           [](Mark& mark, const Expr&) {
                             Tile row = alloc_shared({8}, I32);
                             mark();
                             for (auto i : selected(row, {.limit = 1.5})) {
                             }
                           });
}

TEST_CASE("softmax: p of integers, rows known at launch, lse of halves", "[mistakes]") {
  expect_mistake_in_launch(
      "'p': expected a tile of floats of shape [64, 16]", [](Mark& mark, const Expr&) {
        Tile s = alloc_fragment({64, 16}, F32), p = alloc_fragment({64, 16}, I32);
        Tile acc = alloc_fragment({64, 16}, F32);
        OnlineSoftmax softmax = online_softmax(64, 0.125);
        mark();
        softmax.step(s, p, acc);
      });
  expect_mistake_in_launch("alloc_fragment: extent 0 is known only at launch",
                           [](Mark& mark, const Expr& block) {
                             mark();
                             online_softmax(block, 0.125);
                           });
  expect_mistake_in_launch(
      "softmax_finish: 'lse': expected fragment f32[64], got fragment f16[64]",
      [](Mark& mark, const Expr&) {
        Tile acc = alloc_fragment({64, 16}, F32), lse = alloc_fragment({64}, F16);
        OnlineSoftmax softmax = online_softmax(64, 0.125);
        mark();
        softmax.finish(acc, lse);
      });
}

TEST_CASE("tiles: too large, and spans", "[mistakes]") {
  expect_mistake_in_launch("expected at most 16777216 elements", [](Mark& mark, const Expr&) {
    mark();
    alloc_shared({1 << 13, 1 << 13}, F32);
  });
  expect_mistake_in_launch("span: expected a length above 0, got 0", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64}, F32);
    mark();
    clear(t(span(0, 0)));
  });
  expect_mistake_in_launch("the length of a span is known only at launch",
                           [](Mark& mark, const Expr& block) {
                             Tile t = alloc_shared({64}, F32);
                             mark();
                             clear(t(span(0, block)));
                           });
}

TEST_CASE("reshape, view: another number of bytes, of bools, of a fragment, of a part, of a tensor",
          "[mistakes]") {
  expect_mistake_in_launch("sizes differ: shared f32[8, 8] has 256 bytes, shared f32[8, 9] has 288",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_shared({8, 8}, F32);
                             mark();
                             reshape(t, {8, 9});
                           });
  expect_mistake_in_launch("bools have no bits to share", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({8, 8}, U8);
    mark();
    view(t, {8, 8}, Bool);
  });
  expect_mistake_in_launch("copy it to a shared tile, and reshape that",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_fragment({8, 8}, F32);
                             mark();
                             reshape(t, {64});
                           });
  expect_mistake_in_launch("reshape the whole tile, then take the part",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_shared({8, 8}, F32);
                             mark();
                             reshape(t(span(0, 4), all), {32});
                           });
  expect_mistake("declare the tensor with that shape and dtype", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F32, {8, 8});
      launch({1});
      mark();
      view(x, {64}, F32);
    });
  });
}

TEST_CASE("local arrays: too many elements, given to an operation, annotated", "[mistakes]") {
  expect_mistake_in_launch("at most 64 elements, got local f32[65]", [](Mark& mark, const Expr&) {
    mark();
    alloc_local({65}, F32);
  });
  expect_mistake_in_launch("fill: ", [](Mark& mark, const Expr&) {
    Tile t = alloc_local({8}, F32);
    mark();
    clear(t);
  });
  expect_mistake_in_launch("expected a shared tile or a fragment, got local f32[8]",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_local({8}, F32);
                             mark();
                             annotate_layout(t, RowMajor);
                           });
}

TEST_CASE("the interface: extents, names, places", "[mistakes]") {
  expect_mistake("workspace: extent 0 of 'w' is -4", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      workspace("w", F32, {-4});
    });
  });
  expect_mistake("inout: extent 0 of 'x': expected an integer, got f32", [](Mark& mark) {
    trace("kernel", [&] {
      auto scale = param("scale", F32);
      mark();
      inout("x", F32, {scale});
    });
  });
  expect_mistake("dim: '2n' is not a name", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      dim("2n");
    });
  });
  expect_mistake("param: the name 'n' is taken", [](Mark& mark) {
    trace("kernel", [&] {
      dim("n");
      mark();
      param("n", F32);
    });
  });
  expect_mistake("trace: 'my kernel' is not a name", [](Mark& mark) {
    mark();
    trace("my kernel", [] { launch({1}); });
  });
  expect_mistake("launch: extent 1 is -2", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      launch({4, -2});
    });
  });
  expect_mistake("launch: expected 1 to 3 extents, got 0", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      launch({});
    });
  });
}

}  // namespace
}  // namespace kiln
