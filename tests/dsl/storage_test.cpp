// Local arrays and other names of tiles: what is recorded, and what one gets wrong.
#include <optional>

#include "ir/print.h"
#include "tests/dsl/mistakes.h"

namespace kiln {
namespace {

TEST_CASE("reshape and view record one op", "[storage]") {
  const Kernel kernel = trace("kernel", [] {
    launch({1});
    Tile tile = alloc_shared({4, 6}, F32);
    Tile turned = reshape(tile, {3, 8}), bits = view(turned, {96}, U8);
    CHECK(turned.shape() == Shape{3, 8});
    CHECK(turned.dtype() == F32);
    CHECK(bits.dtype() == U8);
    clear(bits(span(1, 4)));
  });
  CHECK_THAT(print(kernel), Catch::Contains(R"(
    %reshape.0 = reshape %alloc.0 : shared f32[3, 8]
    %reshape.1 = reshape %reshape.0 : shared u8[96]
)") && Catch::Contains("= slice %reshape.1, "));
}

TEST_CASE("alloc_local, in a launch and in a parallel", "[storage]") {
  const Kernel kernel = trace("kernel", [] {
    Tensor y = output("y", F32, {4});
    launch({1});
    Tile table = alloc_local({2, 2}, F32);
    table(0, 0) = table(0, 1) + 1;
    for (auto i : parallel(4)) {
      Tile own = alloc_local({3}, F16);
      own(i % 3) = table(i, 0);
      own(0) += own(i);
      y(i) = own(2);
    }
  });
  CHECK_THAT(print(kernel), Catch::Contains(R"(    %alloc.0 = alloc : local f32[2, 2]
    %const.1 = const {value = 0} : i32
    %const.2 = const {value = 1} : i32
    %load.0 = load %alloc.0, %const.1, %const.2 : f32
)") && Catch::Contains(R"(      %alloc.1 = alloc : local f16[3]
      %const.6 = const {value = 0} : i32
      %load.1 = load %alloc.0, %i, %const.6 : f32
      %const.7 = const {value = 3} : i32
      %floormod.0 = floormod %i, %const.7 : i32
      store %load.1, %alloc.1, %floormod.0
)"));
}

TEST_CASE("reshape: another number of bytes", "[mistakes]") {
  expect_mistake_in_launch(
      "reshape: sizes differ: shared f32[8, 8] has 256 bytes, shared f32[8, 9] has 288",
      [](Mark& mark, const Expr&) {
        Tile t = alloc_shared({8, 8}, F32);
        mark();
        Tile other = reshape(t, {8, 9});
      });
}

TEST_CASE("view: a dtype of another width", "[mistakes]") {
  expect_mistake_in_launch(
      "reshape: sizes differ: shared f32[8, 8] has 256 bytes, shared f16[8, 8] has 128",
      [](Mark& mark, const Expr&) {
        Tile t = alloc_shared({8, 8}, F32);
        mark();
        Tile other = view(t, {8, 8}, F16);
      });
}

TEST_CASE("view: flags", "[mistakes]") {
  expect_mistake_in_launch("keep them as u8 that are 0 or 1", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({8, 8}, Bool);
    mark();
    Tile other = view(t, {64}, U8);
  });
}

TEST_CASE("reshape: a fragment", "[mistakes]") {
  expect_mistake_in_launch("copy it to a shared tile, and reshape that",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_fragment({8, 8}, F32);
                             mark();
                             Tile other = reshape(t, {64});
                           });
}

TEST_CASE("reshape: a part", "[mistakes]") {
  expect_mistake_in_launch("reshape the whole tile, then take the part",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_shared({8, 8}, F32);
                             mark();
                             Tile other = reshape(t(span(0, 4), all), {32});
                           });
}

TEST_CASE("reshape: a tensor", "[mistakes]") {
  expect_mistake("declare the tensor with that shape and dtype", [](Mark& mark) {
    trace("kernel", [&] {
      Tensor x = input("x", F32, {8, 8});
      launch({1});
      mark();
      Tile other = reshape(x, {64});
    });
  });
}

TEST_CASE("reshape: in a parallel, by a traced extent", "[mistakes]") {
  expect_mistake_in_launch("reshape: stands inside a parallel", [](Mark& mark, const Expr&) {
    Tile t = alloc_shared({8, 8}, F32);
    for (auto i : parallel(8)) {
      mark();
      Tile other = reshape(t, {64});
      other(i) = 0;
    }
  });
  expect_mistake_in_launch("reshape: extent 0", [](Mark& mark, const Expr& block) {
    Tile t = alloc_shared({8, 8}, F32);
    mark();
    Tile other = reshape(t, {block, 8});
  });
}

TEST_CASE("alloc_local: too large", "[mistakes]") {
  expect_mistake_in_launch("expected 1 to 4 axes and at most 64 elements, got local f32[8, 9]",
                           [](Mark& mark, const Expr&) {
                             mark();
                             Tile t = alloc_local({8, 9}, F32);
                           });
}

TEST_CASE("alloc_local: an operation on all of it", "[mistakes]") {
  expect_mistake_in_launch("load and store its elements one by one", [](Mark& mark, const Expr&) {
    Tile t = alloc_local({8}, F32);
    mark();
    clear(t);
  });
  expect_mistake_in_launch("load and store its elements one by one", [](Mark& mark, const Expr&) {
    Tile t = alloc_local({8}, F32), s = alloc_shared({8}, F32);
    mark();
    copy(s, t);
  });
  expect_mistake_in_launch("load and store its elements one by one", [](Mark& mark, const Expr&) {
    Tile t = alloc_local({8}, F32);
    mark();
    auto part = t(span(0, 4));
  });
}

TEST_CASE("alloc_local: the block's, written by points", "[mistakes]") {
  expect_mistake_in_launch("an array made inside the parallel is each point's own",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_local({8}, F32);
                             for (auto i : parallel(8)) {
                               mark();
                               t(i) = 0;
                             }
                           });
}

TEST_CASE("alloc_local: an index beyond the end, one after its parallel", "[mistakes]") {
  expect_mistake_in_launch("index 8 is out of range: axis 0 of local f32[8] has extent 8",
                           [](Mark& mark, const Expr&) {
                             Tile t = alloc_local({8}, F32);
                             mark();
                             t(8) = 0;
                           });
  expect_mistake_in_launch("is used after the loop, branch or launch that made it",
                           [](Mark& mark, const Expr&) {
                             std::optional<Tile> own;
                             for (auto i : parallel(8)) {
                               own.emplace(alloc_local({8}, F32));
                               (*own)(i) = 1;
                             }
                             mark();
                             (*own)(0) = 1;
                           });
}

TEST_CASE("a tile made in a parallel", "[mistakes]") {
  expect_mistake_in_launch("alloc_local gives each point its own", [](Mark& mark, const Expr&) {
    for (auto i : parallel(8)) {
      mark();
      Tile t = alloc_shared({8}, F32);
      t(i) = 0;
    }
  });
}

}  // namespace
}  // namespace kiln
