// Mistakes with wishes: annotate_layout and the options of a launch.
#include "tests/dsl/mistakes.h"

namespace kiln {
namespace {

TEST_CASE("annotate_layout: a layout of another shape", "[mistakes]") {
  expect_mistake_in_launch(
      "annotate_layout: shared f16[64, 32]: expected one over [64, 32], got [32, 64]",
      [](Mark& mark, const Expr&) {
        Tile t = alloc_shared({64, 32}, F16);
        mark();
        annotate_layout(t, row_major({32, 64}));
      });
}

TEST_CASE("annotate_layout: a tensor", "[mistakes]") {
  expect_mistake("annotate_layout: expected a tile, got tensor f16[64, 64]", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F16, {64, 64});
      launch({1});
      mark();
      annotate_layout(x, Swizzled128);
    });
  });
}

TEST_CASE("annotate_layout: a part of a tile", "[mistakes]") {
  expect_mistake_in_launch("annotate the tile itself", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64, 64}, F16);
    mark();
    annotate_layout(t(span(0, 32), all), Swizzled128);
  });
}

TEST_CASE("annotate_layout: twice", "[mistakes]") {
  expect_mistake_in_launch("has a layout already", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64, 64}, F16);
    annotate_layout(t, Swizzled128);
    mark();
    annotate_layout(t, RowMajor);
  });
}

TEST_CASE("annotate_layout: a swizzle of a fragment, of one axis", "[mistakes]") {
  expect_mistake_in_launch("expected a shared tile, got fragment f32[64, 64]",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_fragment({64, 64}, F32);
                             mark();
                             annotate_layout(t, Swizzled64);
                           });
  expect_mistake_in_launch("expected a tile with rows and columns to swizzle, got shared f32[64]",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_shared({64}, F32);
                             mark();
                             annotate_layout(t, Swizzled64);
                           });
}

TEST_CASE("annotate_layout: a fragment's layout for a shared tile, and the other way",
          "[mistakes]") {
  expect_mistake_in_launch("expected one by offset in shared memory, got one by thread",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_shared({64, 64}, F32);
                             mark();
                             annotate_layout(t, blocked({64, 64}, 4, 4));
                           });
  expect_mistake_in_launch("expected one by register, 32 lanes and warp, got one by offset",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_fragment({64, 64}, F32);
                             mark();
                             annotate_layout(t, row_major({64, 64}));
                           });
}

TEST_CASE("annotate_layout: elements in several places", "[mistakes]") {
  expect_mistake_in_launch(
      "expected one place an element, got several", [](Mark& mark, const Expr&) {
        Tile t = alloc_shared({64}, F32);
        mark();
        annotate_layout(t, "[64] digit 64 offset 1 axis 0 1 digit 2 offset 64 copies");
      });
}

TEST_CASE("annotate_layout: a text that is no layout", "[mistakes]") {
  expect_mistake_in_launch("expected `axis` at `row`", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64}, F32);
    mark();
    annotate_layout(t, "[64] digit 64 offset 1 row");
  });
  expect_mistake_in_launch("ir/layout/text.h", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({64}, F32);
    mark();
    annotate_layout(t, "[64] digit 32 offset 1 axis 0 1");
  });
}

TEST_CASE("annotate_layout: a tile of a loop that has ended", "[mistakes]") {
  expect_mistake_in_launch("allocate it before that", [](Mark& mark, const Expr&) {
    std::optional<Tile> inside;
    for (auto i : serial(8)) inside.emplace(alloc_shared({8}, F32));
    mark();
    annotate_layout(*inside, RowMajor);
  });
}

TEST_CASE("launch: a panel of less than no blocks", "[mistakes]") {
  expect_mistake("launch: rasterize: expected 0 to 2147483647, got -8", [](Mark& mark) {
    trace("kernel", [&] {
      mark();
      launch({4, 4}, {.rasterize = -8});
    });
  });
}

}  // namespace
}  // namespace kiln
