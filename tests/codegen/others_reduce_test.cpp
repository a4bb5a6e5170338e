// Faults that others' users met in reductions (tests/OTHERS_BUGS.md): widths and strides that are
// no power of two, parts added more than once, positions that are skipped.
#include "dsl/dsl.h"
#include "ir/walk.h"
#include "tests/codegen/exact.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

// Widths of one kernel: each has a launch.
constexpr int64_t kWidths = 10;

// Along the last axis of 1 … w and along the first of 3·i + j, from registers and from shared
// memory; of negative numbers too, so that an identity of 0 shows.
Kernel reduce_widths(int64_t first) {
  return trace("widths", [&] {
    Tensor x = input("x", F32, {3 * (first + kWidths)});
    Tensor sums = output("sums", F32, {kWidths, 2, 4}),
           firsts = output("firsts", F32, {kWidths, 3});
    for (int64_t at = 0; at < kWidths; ++at) {
      const int64_t w = first + at;
      launch({1});
      for (int shared : {0, 1}) {
        const auto alloc = [&](const std::vector<Arg>& extents) {
          return shared != 0 ? alloc_shared(extents, F32) : alloc_fragment(extents, F32);
        };
        Tile up = alloc({w}), down = alloc({w}), one = alloc_shared({1}, F32);
        copy(x(span(0, w)), up);
        copy(x(span(0, w)), down);
        for (auto i : parallel(w)) down(i) = -down(i);
        reduce_sum(up, one, 0);
        sums(at, shared, 0) = one(0);
        reduce_max(down, one, 0);
        sums(at, shared, 1) = one(0);
        reduce_min(up, one, 0);
        sums(at, shared, 2) = one(0);
        reduce_absmax(down, one, 0);
        sums(at, shared, 3) = one(0);
      }
      Tile box = alloc_fragment({w, 3}, F32), most = alloc_fragment({3}, F32);
      for (auto [i, j] : parallel(w, 3)) box(i, j) = x(i * 3 + j);
      reduce_max(box, most, 0);
      copy(most, firsts(at, all));
    }
  });
}

}  // namespace

TEST_CASE("reductions of any width from 1 to 130 (T9)", "[reduce][others]") {
  for (int64_t first = 1; first <= 130; first += kWidths) {
    INFO("widths from " << first);
    Kernel kernel = reduce_widths(first);
    const int64_t warps = 1 + first / kWidths % 6;
    walk(kernel, kernel.body, [&](OpId id) {
      if (kernel.op(id).code == OpCode::Launch) kernel.op(id).attrs.set("warps", warps);
    });
    run_exact(
        kernel, {},
        [](RandomBindings& bindings) {
          bindings.fill("x", [](const Shape& index) { return static_cast<double>(index[0] + 1); });
        },
        [&](RandomBindings& bindings) {
          check_all(bindings, "sums", {kWidths, 2, 4}, [&](const Shape& index) {
            const int64_t w = first + index[0];
            const int64_t right[] = {w * (w + 1) / 2, -1, 1, w};
            return static_cast<double>(right[index[2]]);
          });
          check_all(bindings, "firsts", {kWidths, 3}, [&](const Shape& index) {
            return static_cast<double>(3 * (first + index[0] - 1) + index[1] + 1);
          });
        });
  }
}

TEST_CASE("1 … 48 is 1176, and a stride of 3 reaches its last row (T9)", "[reduce][others]") {
  const Kernel kernel = trace("t9", [&] {
    Tensor y = output("y", F32, {4});
    launch({1});
    Tile x = alloc_fragment({48}, F32), sum = alloc_shared({1}, F32);
    for (auto i : parallel(48)) x(i) = cast(i + 1, F32);
    reduce_sum(x, sum, 0);
    Tile box = alloc_fragment({32, 3}, F32), most = alloc_fragment({3}, F32);
    for (auto [i, j] : parallel(32, 3)) box(i, j) = cast(i * 3 + j, F32);
    reduce_max(box, most, 0);
    copy(most, y(span(0, 3)));
    y(3) = sum(0);
  });
  run_exact(kernel, {}, {}, [](RandomBindings& bindings) {
    check_all(bindings, "y", {4}, [](const Shape& index) {
      return index[0] == 3 ? 1176.0 : 93.0 + static_cast<double>(index[0]);
    });
  });
}

// A gemm beside it gives the launch more warps than the reduction has elements: what several
// threads hold counts once, into an old value too.
TEST_CASE("each element counts once, whatever the number of threads", "[reduce][others]") {
  struct Box {
    int64_t rows, columns;
  };
  for (const Box& box : {Box{1, 1}, {2, 4}, {5, 3}, {8, 8}, {64, 4}, {3, 96}, {48, 48}}) {
    const auto [rows, columns] = box;
    const Kernel kernel = trace("once", [&, rows = rows, columns = columns] {
      Tensor w = input("w", F16, {64, 64}), y = output("y", F32, {4, rows});
      Tensor z = output("z", F32, {4, 2});
      const Expr block = launch({4})[0];
      Tile a = alloc_shared({64, 64}, F16), c = alloc_fragment({64, 64}, F32);
      copy(w, a);
      gemm(a, a, c, {.clear = true});
      Tile ones = alloc_fragment({rows, columns}, F32), sums = alloc_fragment({rows}, F32);
      Tile total = alloc_shared({1}, F32), product = alloc_shared({1}, F32);
      Tile of_rows = alloc_fragment({64}, F32);
      fill(ones, 1);
      fill(sums, 10);
      for (auto round : serial(3)) {
        for (auto [i, j] : parallel(rows, columns)) ones(i, j) += cast(round, F32);
        reduce_sum(ones, sums, 1, false);
      }
      reduce_sum(sums, total, 0);
      reduce_sum(c, of_rows, 1);
      reduce_sum(of_rows, product, 0);
      copy(sums, y(block, all));
      z(block, 0) = total(0);
      z(block, 1) = product(0);
    });
    INFO(rows << "x" << columns);
    run_exact(
        kernel, {},
        [](RandomBindings& bindings) { bindings.fill("w", [](const Shape&) { return 1; }); },
        [&, rows = rows, columns = columns](RandomBindings& bindings) {
          // 10 + (1 + 2 + 4) · columns
          const double right = 10 + 7 * static_cast<double>(columns);
          check_all(bindings, "y", {4, rows}, [&](const Shape&) { return right; });
          check_all(bindings, "z", {4, 2}, [&](const Shape& index) {
            return index[1] == 0 ? right * static_cast<double>(rows) : 64.0 * 64 * 64;
          });
        });
  }
}

TEST_CASE("absmax finds the one large element at every position", "[reduce][others]") {
  for (int64_t width : {576, 96, 80}) {
    const Kernel kernel = trace("absmax", [&] {
      Tensor x = input("x", F32, {width, width}), y = output("y", F32, {width});
      const Expr block = launch({width})[0];
      Tile row = alloc_fragment({width}, F32), most = alloc_shared({1}, F32);
      copy(x(block, all), row);
      reduce_absmax(row, most, 0);
      y(block) = most(0);
    });
    INFO(width);
    run_exact(
        kernel, {},
        [](RandomBindings& bindings) {
          bindings.fill("x", [](const Shape& index) { return index[0] == index[1] ? -5.0 : 1.0; });
        },
        [&](RandomBindings& bindings) {
          check_all(bindings, "y", {width}, [](const Shape&) { return 5.0; });
        });
  }
}
