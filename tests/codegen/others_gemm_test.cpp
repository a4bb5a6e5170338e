// Faults that others' users met in products of matrices (tests/OTHERS_BUGS.md): columns of a tile
// that no warp writes, depths whose rest is dropped, results that depend on the grid.
#include "dsl/dsl.h"
#include "ir/walk.h"
#include "tests/codegen/exact.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

struct Shape3 {
  int64_t m, n, k;
};

// c = 2 · a · b over blocks of one tile each; the tensors end within the last tiles.
Kernel product(const Shape3& tile, DType dtype = F16, GemmPolicy policy = Square) {
  return trace("product", [&] {
    Dim m = dim("m"), n = dim("n");
    Tensor a = input("a", dtype, {m, tile.k}), b = input("b", dtype, {tile.k, n});
    const DType out = is_int(dtype) ? I32 : F32;
    Tensor c = output("c", out, {m, n});
    auto [x, y, z] = launch({ceildiv(n, tile.n), ceildiv(m, tile.m)});
    Span rows = span(y * tile.m, tile.m), columns = span(x * tile.n, tile.n);
    Tile left = alloc_shared({tile.m, tile.k}, dtype),
         right = alloc_shared({tile.k, tile.n}, dtype);
    Tile sum = alloc_fragment({tile.m, tile.n}, out);
    copy(a(rows, all), left);
    copy(b(all, columns), right);
    gemm(left, right, sum, {.clear = true, .policy = policy});
    gemm(left, right, sum, {.policy = policy});  // two into one fragment
    copy(sum, c(rows, columns));
  });
}

// Of ones: every element is 2 · k. Of other small integers: what the interpreter says.
void check_product(const Shape3& tile, DType dtype = F16, GemmPolicy policy = Square) {
  INFO(name(dtype) << " " << tile.m << "x" << tile.n << "x" << tile.k);
  const Kernel kernel = product(tile, dtype, policy);
  const std::map<std::string, int64_t> dims = {{"m", 2 * tile.m}, {"n", 2 * tile.n}};
  const auto ones = [](RandomBindings& bindings) {
    for (const char* one : {"a", "b"}) bindings.fill(one, [](const Shape&) { return 1; });
  };
  run_exact(kernel, dims, ones, [&](RandomBindings& bindings) {
    check_all(bindings, "c", {2 * tile.m, 2 * tile.n},
              [&](const Shape&) { return static_cast<double>(2 * tile.k); });
  });
  Check check;
  check.options.seed = random_seed();
  check.dims = {{"m", tile.m + 3}, {"n", 2 * tile.n - 1}};
  CHECK(check_lowered(kernel, {check}) == "");
}

}  // namespace

TEST_CASE("gemm of ones gives the depth everywhere (T8)", "[gemm][others]") {
  for (const Shape3& tile : {Shape3{16, 104, 16},
                             {64, 24, 64},
                             {64, 40, 64},
                             {64, 72, 64},
                             {64, 64, 24},
                             {64, 64, 8},
                             {64, 104, 40},
                             {32, 200, 8}})
    check_product(tile);
}

TEST_CASE("every width that is a multiple of 8, with depths that are no multiple of 16",
          "[gemm][others]") {
  const int64_t heights[] = {16, 64, 32, 48}, depths[] = {8, 24, 16, 40, 56};
  for (int64_t n = 8; n <= 256; n += 8)
    check_product({heights[n / 8 % 4], n, depths[n / 8 % 5]}, n % 16 == 0 ? F16 : BF16);
}

TEST_CASE("blocks of rows stay where they are, however many warps share them", "[gemm][others]") {
  for (int64_t m : {64, 128, 256})
    for (GemmPolicy policy : {Square, FullRow, FullCol}) check_product({m, 40, 16}, F16, policy);
}

// A launch may say how many warps it has: also one that does not divide the tile.
TEST_CASE("any number of warps covers a tile", "[gemm][others]") {
  if (on_host()) return;
  for (int64_t warps : {1, 2, 3, 5, 6, 8, 12, 16})
    for (const Shape3& tile : {Shape3{16, 104, 16}, {48, 72, 24}, {64, 24, 8}}) {
      INFO(warps << " warps, " << tile.m << "x" << tile.n << "x" << tile.k);
      Kernel kernel = product(tile);
      walk(kernel, kernel.body, [&](OpId id) {
        if (kernel.op(id).code == OpCode::Launch) kernel.op(id).attrs.set("warps", warps);
      });
      Check check;
      check.options.seed = random_seed();
      check.dims = {{"m", 2 * tile.m}, {"n", 2 * tile.n}};
      CHECK(check_program(kernel, check) == "");
    }
}

TEST_CASE("extents that no instruction has", "[gemm][others]") {
  for (const Shape3& tile :
       {Shape3{17, 8, 16}, {16, 12, 16}, {16, 8, 20}, {1, 1, 1}, {5, 229, 3}, {100, 7, 9}})
    check_product(tile);
  check_product({16, 24, 24}, F32);
  check_product({48, 104, 24}, E4M3);
  check_product({16, 40, 24}, I8);
  check_product({32, 24, 8}, U8);
  check_product({48, 72, 104}, I8);
}

// What one gemm makes is an operand of the next in both places, a summand, and read by rows and by
// columns: each wants its elements in other threads.
TEST_CASE("one fragment in many roles", "[gemm][others]") {
  for (int64_t n : {16, 48, 64}) {
    const Kernel kernel = trace("roles", [&] {
      Tensor a = input("a", F16, {3, n, n}), y = output("y", F32, {3, n, n});
      Tensor rows = output("rows", F32, {3, n}), columns = output("columns", F32, {3, n});
      const Expr block = launch({3})[0];
      Tile x = alloc_shared({n, n}, F16);
      Tile s = alloc_fragment({n, n}, F32), cast_s = alloc_fragment({n, n}, F16);
      Tile other = alloc_fragment({n, n}, F32), sum = alloc_fragment({n, n}, F32);
      Tile by_row = alloc_fragment({n}, F32), by_column = alloc_fragment({n}, F32);
      Tile constants = alloc_fragment({n, n}, F32);  // that nothing else gives a layout
      fill(constants, 2);
      copy(a(block, all, all), x);
      gemm(x, x, s, {.transpose_b = true, .clear = true});
      for (auto [i, j] : parallel(n, n)) cast_s(i, j) = min(max(s(i, j), -3.f), 3.f);
      reduce_max(s, by_row, 1);
      reduce_min(s, by_column, 0);
      gemm(cast_s, x, sum, {.clear = true});
      gemm(x, cast_s, other, {.clear = true});
      gemm(cast_s, cast_s, other, {.transpose_b = true});
      for (auto [i, j] : parallel(n, n))
        sum(i, j) = sum(i, j) + other(i, j) * constants(i, j) + by_row(i) - by_column(j);
      copy(sum, y(block, all, all));
      copy(by_row, rows(block, all));
      copy(by_column, columns(block, all));
    });
    INFO(n);
    Check check;
    check.options.seed = random_seed();
    check.options.low = -2, check.options.high = 2;
    CHECK(check_lowered(kernel, {check}) == "");
  }
}

TEST_CASE("bytes of one product are the next one's operand", "[gemm][others]") {
  for (int64_t n : {32, 64}) {
    const Kernel kernel = trace("bytes", [&] {
      Tensor a = input("a", I8, {3, 64, n}), y = output("y", I32, {3, 64, n});
      const Expr block = launch({3})[0];
      Tile x = alloc_shared({64, n}, I8), s = alloc_fragment({64, 64}, I32);
      Tile p = alloc_fragment({64, 64}, I8), sum = alloc_fragment({64, n}, I32);
      copy(a(block, all, all), x);
      gemm(x, x, s, {.transpose_b = true, .clear = true});
      for (auto [i, j] : parallel(64, 64)) p(i, j) = cast(min(max(s(i, j), -9), 9) + i % 3, I8);
      gemm(p, x, sum, {.clear = true});
      copy(sum, y(block, all, all));
    });
    Check check;
    check.options.seed = random_seed();
    CHECK(check_lowered(kernel, {check}) == "");
  }
}
