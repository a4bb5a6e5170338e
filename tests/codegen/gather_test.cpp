// Rows by index.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "tests/codegen/device_ops.h"
#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Check seeded(int64_t low, int64_t high) {
  Check check;
  check.options.seed = random_seed();
  check.options.odd_strides = true;
  check.options.low = low;
  check.options.high = high;
  return check;
}

}  // namespace

TEST_CASE("gather rows of a tensor", "[gather]") {
  for (DType dtype : {F16, F32, I8, Bool})
    for (int columns : {1, 8, 40})
      for (double pad : {0.0, 1.0}) {
        const Kernel kernel = trace("gather", [&] {
          Dim n = dim("n");
          Tensor x = input("x", dtype, {n, columns}), list = input("list", I32, {3, 24});
          Tensor y = output("y", dtype, {3, 24, columns}), z = output("z", dtype, {3, 24, columns});
          auto [block, b, c] = launch({3});
          Tile rows = alloc_shared({24}, I32), own = alloc_fragment({24}, I32);
          Tile shared = alloc_shared({24, columns}, dtype);
          Tile fragment = alloc_fragment({24, columns}, dtype);
          copy(list(block, all), rows);
          copy(rows, own);
          gather(x, rows, shared, {.pad = pad});
          gather(x, own, fragment, {.pad = pad});
          copy(shared, y(block, all, all));
          copy(fragment, z(block, all, all));
        });
        INFO(name(dtype) << ", " << columns << " columns, pad " << pad);
        for (int64_t n : {0, 1, 19}) {
          Check check = seeded(-2, 21);
          check.dims["n"] = n;
          CHECK(check_lowered(kernel, {check}) == "");
        }
      }
}

TEST_CASE("gather from parts, into parts, with another dtype", "[gather]") {
  for (double pad : {0.0, -2.0}) {
    const Kernel kernel = trace("pages", [&] {
      Dim batch = dim("batch"), seq = dim("seq");
      Tensor k = input("k", F16, {batch, 3, seq, 16});
      Tensor list = input("list", I32, {batch, 16}), from = input("from", I32, {1});
      Tensor y = output("y", F32, {batch, 20, 16}), z = output("z", F32, {batch, 20, 20});
      auto [batch_index, h, c] = launch({batch, 3});
      const Expr b = batch_index;
      Tile rows = alloc_shared({2, 16}, I32);
      Tile part = alloc_shared({20, 16}, F32), wide = alloc_fragment({20, 20}, F32);
      copy(list(b, all), rows(1, all), {.pad = -1});
      fill(part, 7);
      fill(wide, 8);
      // A part that begins anywhere, and sticks out of the tensor.
      gather(k(b, h, span(from(0), 15), all), rows(1, all), part(span(from(0), 16), all),
             {.pad = pad});
      gather(k(b, h, all, all), rows(1, all), wide(span(2, 16), span(from(0), 16)), {.pad = pad});
      when(h == 1, [&] {
        copy(part, y(b, all, all));
        copy(wide, z(b, all, all));
      });
    });
    INFO(pad);
    CHECK(check_lowered(kernel, {seeded(-3, 18), seeded(0, 4)}) == "");
  }
}

TEST_CASE("every n-th row, of which a gather and a choice are taken too", "[gather]") {
  for (int step : {1, 3, 8}) {
    const Kernel kernel = trace("every", [&] {
      Dim n = dim("n");
      Tensor x = input("x", F16, {2, n, 24}), ends = input("ends", I32, {4});
      Tensor list = input("list", I32, {6}), y = output("y", F16, {2, 20, 24});
      Tensor z = output("z", F32, {6, 24}), w = inout("w", F16, {2, n, 24});
      auto [block, b, c] = launch({2});
      const Expr head = block;
      Tile tile = alloc_shared({20, 24}, F16), some = alloc_fragment({6, 24}, F32);
      Tile rows = alloc_shared({6}, I32);
      const View apart = every(x, 1, step, ends(0), ends(1));
      copy(apart(head, span(ends(2), 20), all), tile);
      copy(tile, y(head, all, all));
      copy(tile, every(w, 1, step, ends(3), n)(head, span(ends(2), 20), all));
      copy(list, rows);
      gather(apart(head, all, all), rows, some, {.pad = 3});
      when(head == 1, [&] { copy(some, z); });
    });
    INFO("step " << step);
    for (int64_t n : {0, 1, 40, 150}) {
      Check small = seeded(-2, 18), large = seeded(-2147483647, 2147483647);
      small.dims["n"] = large.dims["n"] = n;
      CHECK(check_lowered(kernel, {small, large}) == "");
    }
  }
}

TEST_CASE("scatter rows", "[gather]") {
  for (DType dtype : {F32, BF16})
    for (int step : {1, 3, -2}) {
      const Kernel kernel = trace("scatter", [&] {
        Dim n = dim("n");
        Tensor x = input("x", F32, {2, 20, 12}), first = input("first", I32, {2});
        Tensor y = inout("y", dtype, {2, n, 12}), z = output("z", dtype, {2, 30, 12});
        auto [block, b, c] = launch({2});
        Tile rows = alloc_fragment({20}, I32), tile = alloc_fragment({20, 12}, dtype);
        Tile values = alloc_shared({20, 12}, F32), sorted = alloc_shared({30, 12}, dtype);
        copy(x(block, all, all), values);
        copy(values, tile);
        fill(sorted, 3);
        for (auto i : parallel(20)) rows(i) = first(block) + i * step;
        scatter(tile, rows, y(block, all, all));
        scatter(values(all, all), rows, sorted(span(first(block), 20), all));
        copy(sorted, z(block, all, all));
      });
      INFO(name(dtype) << ", step " << step);
      CHECK(check_lowered(kernel, {seeded(-5, 30), seeded(0, 3)}) == "");
    }
}
