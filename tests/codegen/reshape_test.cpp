// Tiles under other names: of another shape, of another dtype.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr DType kDTypes[] = {F16, BF16, F32, F64, E4M3, E5M2, I8, I16, I32, I64, U8, U16, U32, U64};

// On the host tier, or the device of KILN_TEST_DEVICE; and in the emulator, copies as late as may
// be.
std::string fault(const Kernel& kernel, Random& random, bool any_bits = false) {
  Check check = random.check();
  check.options.any_bits = any_bits;
  const std::string found = check_lowered(kernel, {check});
  return found.empty() && on_host() ? emulation_fault(kernel, random.target(), check) : found;
}

// Of that many elements, with 1 to 3 axes.
Shape factors(Random& random, int64_t count) {
  Shape shape;
  const auto axes = static_cast<size_t>(random(1, 3));
  while (shape.size() + 1 < axes) {
    int64_t factor = random(1, count);
    while (count % factor != 0) --factor;
    shape.push_back(factor);
    count /= factor;
  }
  shape.push_back(count);
  return shape;
}

std::vector<Arg> args(const Shape& shape) {
  std::vector<Arg> extents;
  for (int64_t extent : shape) extents.push_back(Arg(static_cast<int>(extent)));
  return extents;
}

// All of a tensor or tile of 1 to 3 axes.
View all_of(const Storage& storage) {
  switch (storage.shape().size()) {
    case 1: return storage(all);
    case 2: return storage(all, all);
    default: return storage(all, all, all);
  }
}

int64_t bytes_of(DType dtype) {
  return static_cast<int64_t>(size_of(dtype));
}

}  // namespace

TEST_CASE("what is written under one name is read under another", "[reshape]") {
  Random random;
  for (DType dtype : kDTypes)
    for (int round = 0; round < 3; ++round) {
      const int64_t count = random.coin() ? 16 * random(1, 40) : random(1, 400);
      const Shape a = factors(random, count), b = factors(random, count),
                  c = factors(random, count);
      INFO(name(dtype) << " " << str(a) << " " << str(b) << " " << str(c));
      const Kernel kernel = trace("names", [&] {
        Tensor x = input("x", dtype, args(a)), y = output("y", dtype, args(b));
        Tensor z = output("z", dtype, args(c)), w = output("w", dtype, args(a));
        launch({1});
        Tile tile = alloc_shared(args(a), dtype);
        Tile other = reshape(tile, args(b)), third = reshape(other, args(c));
        copy(x, tile);
        copy(other, y);
        fill(other, 3);
        copy(third, z);
        copy(all_of(x), third.shape() == a ? all_of(third) : all_of(tile));
        copy(tile, w);
      });
      CHECK(fault(kernel, random) == "");
    }
}

TEST_CASE("the bits of every dtype as every other", "[reshape]") {
  Random random;
  for (DType from : kDTypes)
    for (DType to : {random.of({U8, U16, U32, U64, I16}), kDTypes[random.below(14)]}) {
      const int64_t rows = random(1, 9), bytes = 8 * random(1, 12);
      INFO(name(from) << " as " << name(to) << ", " << rows << " rows of " << bytes << " bytes");
      // As numbers floats need not keep the bits of a NaN; as bits they do.
      const bool numbers = is_float(to) || is_float(from);
      const Kernel kernel = trace("bits", [&] {
        const auto columns = [&](DType dtype) { return static_cast<int>(bytes / bytes_of(dtype)); };
        const int lines = static_cast<int>(rows);
        Tensor x = input("x", from, {lines, columns(from)});
        Tensor y = output("y", to, {lines, columns(to)});
        Tensor z = output("z", from, {lines, columns(from)});
        launch({1});
        Tile tile = alloc_shared({lines, columns(from)}, from);
        Tile seen = view(tile, {lines, columns(to)}, to);
        copy(x, tile);
        copy(seen, y);
        Tile bits = view(tile, {lines * static_cast<int>(bytes) / 4}, U32);
        for (auto i : parallel(lines * static_cast<int>(bytes) / 4)) bits(i) = bits(i) ^ 0x01010101;
        copy(tile, z);
      });
      CHECK(fault(kernel, random, !numbers) == "");
    }
}

TEST_CASE("signs of floats by their bits", "[reshape]") {
  Random random;
  const Kernel kernel = trace("negate", [] {
    Dim n = dim("n");
    Tensor x = input("x", F32, {n, 24}), y = output("y", F32, {n, 24});
    Tensor h = input("h", F16, {n, 24}), g = output("g", F16, {n, 24});
    auto [row, b, c] = launch({ceildiv(n, 8)});
    Tile s = alloc_shared({8, 24}, F32), halves = alloc_shared({8, 24}, F16);
    Tile bits = view(s, {8, 24}, U32), pairs = view(halves, {8, 12}, U32);
    copy(x(span(row * 8, 8), all), s);
    copy(h(span(row * 8, 8), all), halves);
    for (auto [i, j] : parallel(8, 24)) bits(i, j) = bits(i, j) ^ 0x80000000u;
    for (auto [i, j] : parallel(8, 12)) pairs(i, j) = pairs(i, j) ^ 0x80008000u;
    copy(s, y(span(row * 8, 8), all));
    copy(halves, g(span(row * 8, 8), all));
  });
  for (int64_t n : {0, 5, 16}) {
    Check check = random.check();
    check.dims["n"] = n;
    CHECK(check_lowered(kernel, {check}) == "");
    if (on_host() && n > 0) CHECK(emulation_fault(kernel, random.target(), check) == "");
  }
}

// Rows come as one long line, by cp.async where they may, and are operands under other names.
TEST_CASE("operands of gemms under other names", "[reshape]") {
  Random random;
  for (int round = 0; round < 14; ++round) {
    const DType dtype = random.of({F16, BF16, I8, F32, F64, E4M3});
    const DType sum = dtype == I8 ? I32 : dtype == F64 ? F64 : F32;
    const bool odd = random.chance(30), swap_a = random.coin(), swap_b = random.coin();
    const int m = static_cast<int>(odd ? random(1, 40) : 16 * random(1, 3));
    const int n = static_cast<int>(odd ? random(1, 40) : 8 * random(1, 6));
    const int k = static_cast<int>(odd ? random(1, 40) : 32 * random(1, 3));
    INFO(name(dtype) << " " << m << "x" << n << "x" << k << (swap_a ? " a'" : "")
                     << (swap_b ? " b'" : ""));
    const Kernel kernel = trace("operands", [&] {
      Tensor a = input("a", dtype, {3, m * k}), b = input("b", dtype, {3, k, n});
      Tensor c = output("c", sum, {m, n});
      launch({1});
      Tile flat_a = alloc_shared({m * k}, dtype), rows_b = alloc_shared({1, k, n}, dtype);
      Tile x = swap_a ? reshape(flat_a, {k, m}) : reshape(flat_a, {m, k});
      Tile y = swap_b ? reshape(rows_b, {n, k}) : reshape(rows_b, {k, n});
      Tile acc = alloc_fragment({m, n}, sum);
      clear(acc);
      for (auto i : pipelined(3)) {
        copy(a(i, all), flat_a);
        copy(b(i, all, all), rows_b);
        gemm(x, y, acc, {.transpose_a = swap_a, .transpose_b = swap_b});
      }
      copy(acc, c);
    });
    CHECK(fault(kernel, random) == "");
  }
}

// Rows that begin anywhere: a part of a tile whose rows are no multiple of what is loaded at once.
TEST_CASE("parts of other names as operands of gemms", "[reshape]") {
  Random random;
  for (int round = 0; round < 8; ++round) {
    const DType dtype = random.of({F16, BF16, I8, F32});
    const int m = 16, n = static_cast<int>(8 * random(1, 4)), k = 32;
    const int rows = static_cast<int>(random(0, 3)), columns = static_cast<int>(random(0, 9));
    const int first = static_cast<int>(random(0, columns));
    INFO(name(dtype) << " n " << n << " in " << m + rows << "x" << k + columns << " at " << first);
    const Kernel kernel = trace("operands", [&] {
      const DType sum = dtype == I8 ? I32 : F32;
      Tensor a = input("a", dtype, {(m + rows) * (k + columns)});
      Tensor b = input("b", dtype, {(k + columns) * (n + rows)}), c = output("c", sum, {m, n});
      launch({1});
      Tile flat_a = alloc_shared({(m + rows) * (k + columns)}, dtype);
      Tile flat_b = alloc_shared({(k + columns) * (n + rows)}, dtype);
      Tile x = reshape(flat_a, {m + rows, k + columns});
      Tile y = reshape(flat_b, {k + columns, n + rows}), acc = alloc_fragment({m, n}, sum);
      copy(a, flat_a);
      copy(b, flat_b);
      gemm(x(span(rows, m), span(first, k)), y(span(first, k), span(rows, n)), acc,
           {.clear = true});
      copy(acc, c);
    });
    CHECK(fault(kernel, random) == "");
  }
}

TEST_CASE("parts of other names", "[reshape]") {
  Random random;
  for (int round = 0; round < 8; ++round) {
    const DType dtype = random.of({F16, F32, I32, U8});
    const int rows = static_cast<int>(random(2, 12)), columns = static_cast<int>(4 * random(1, 10));
    INFO(name(dtype) << " " << rows << "x" << columns);
    const Kernel kernel = trace("parts", [&] {
      Dim at = dim("at");
      Tensor x = input("x", dtype, {rows, columns}), y = output("y", dtype, {columns, rows});
      Tensor z = output("z", dtype, {rows, columns});
      launch({1});
      Tile tile = alloc_shared({rows, columns}, dtype);
      Tile turned = reshape(tile, {columns, rows});
      Tile half = alloc_fragment({columns / 2, rows}, dtype);
      copy(x, tile);
      copy(turned(span(at, columns / 2), all), half);  // it may stick out
      for (auto [i, j] : parallel(columns / 2, rows)) half(i, j) = half(i, j) + 1;
      copy(half, turned(span(Expr(at) - 2, columns / 2), all));
      copy(turned, y);
      copy(tile(span(1, rows - 1), all), z(span(0, rows - 1), all));
      copy(tile(0, all), z(rows - 1, all));
    });
    Check check = random.check();
    check.dims["at"] = random(1, columns);
    CHECK(check_lowered(kernel, {check}) == "");
    if (on_host()) CHECK(emulation_fault(kernel, random.target(), check) == "");
  }
}

// Each round writes through one name what the next reads through others.
TEST_CASE("names in turns, round by round", "[reshape]") {
  Random random;
  for (int round = 0; round < 8; ++round) {
    const int n = static_cast<int>(random(3, 24)), m = static_cast<int>(random(2, 24));
    INFO(n << "x" << m);
    const Kernel kernel = trace("turns", [&] {
      Dim rounds = dim("rounds");
      Tensor x = inout("x", I32, {n, m}), sums = output("sums", I32, {m, rounds});
      launch({1});
      Tile tile = alloc_shared({n, m}, I32), sum = alloc_fragment({m}, I32);
      Tile turned = reshape(tile, {m, n}), line = reshape(turned, {n * m});
      Tile moved = alloc_fragment({n * m}, I32);
      copy(x, tile);
      for (auto r : serial(rounds)) {
        for (auto i : parallel(n * m)) moved(i) = line((i * 7 + r) % (n * m));
        for (auto [i, j] : parallel(n, m)) tile(i, j) = tile(i, j) * 3 + 1;
        reduce_sum(turned, sum, 1);
        for (auto i : parallel(m)) sums(i, r) = sum(i);
        copy(moved, line);
      }
      copy(tile, x);
    });
    Check check = random.check();
    check.dims["rounds"] = random(0, 4);
    CHECK(check_lowered(kernel, {check}) == "");
    if (on_host()) CHECK(emulation_fault(kernel, random.target(), check) == "");
  }
}

TEST_CASE("whole-tile operations under other names", "[reshape]") {
  Random random;
  for (int round = 0; round < 6; ++round) {
    const int n = static_cast<int>(random(2, 20)), m = static_cast<int>(random(2, 20));
    INFO(n << "x" << m);
    const Kernel kernel = trace("operations", [&] {
      Tensor x = input("x", I32, {n * m}), list = input("list", I32, {m});
      Tensor first = output("first", I32, {m, n}), sums = output("sums", I32, {n, m});
      Tensor where = output("where", I32, {m}), picked = output("picked", I32, {m, n});
      Tensor all_counts = output("counts", I32, {m * n});
      launch({1});
      Tile line = alloc_shared({n * m}, I32), rows = alloc_shared({m}, I32);
      Tile wide = reshape(line, {n, m}), tall = reshape(line, {m, n});
      Tile order = alloc_shared({m * n}, I32), sorted = reshape(order, {m, n});
      Tile at = alloc_fragment({m}, I32), total = alloc_fragment({n, m}, I32);
      copy(x, line);
      copy(list, rows);
      reduce_argmax(tall, at, 1);
      copy(at, where);
      cumsum(wide, total, 1);
      copy(total, sums);
      gather(tall, rows, sorted);
      copy(sorted, picked);
      for (auto [i, j] : parallel(m, n)) sorted(i, j) = 0;
      Tile flat = reshape(sorted, {1, m * n});
      for (auto i : parallel(n * m)) atomic_add(flat(0, line(i) % (n * m)), i);
      copy(order, all_counts);
    });
    CHECK(fault(kernel, random) == "");
  }
}

TEST_CASE("results under other names, and loops over them", "[reshape]") {
  Random random;
  for (int round = 0; round < 4; ++round) {
    const int n = static_cast<int>(random(2, 20)), m = static_cast<int>(2 * random(1, 9));
    INFO(n << "x" << m);
    const Kernel kernel = trace("results", [&] {
      Tensor x = input("x", F16, {n, m}), mask = input("mask", I8, {n, m});
      Tensor sums = output("sums", F32, {m}), order = output("order", I32, {m, n});
      Tensor hits = output("hits", I32, {n * m});
      launch({1});
      Tile tile = alloc_shared({n * m}, F16), flags = alloc_shared({n, m}, I8);
      Tile rows = alloc_shared({2, m / 2}, F32), places = alloc_shared({1, n * m}, I32);
      Tile keys = alloc_fragment({m, n}, F16);
      copy(x, reshape(tile, {n, m}));
      copy(mask, flags);
      reduce_sum(reshape(tile, {m, n}), reshape(rows, {m}), 1);
      fill(rows(1, span(0, 1)), 5);
      copy(reshape(rows, {m}), sums);
      sort(reshape(tile, {m, n}), keys, reshape(places, {m, n}), 1);
      copy(reshape(places, {m, n}), order);
      fill(places, 0);
      for (auto i : selected(reshape(flags, {n * m}), {.ordered = true}))
        reshape(places, {n * m})(i) = i;
      copy(reshape(places, {n * m}), hits);
    });
    CHECK(fault(kernel, random) == "");
  }
}
