// Faults that others' users met in moving elements (tests/OTHERS_BUGS.md): pads that are forgotten,
// parts that reach too far, vectors where there are none, offsets beyond 2^31, tiles that overlap.
#include <sys/mman.h>

#include "dsl/dsl.h"
#include "tests/codegen/exact.h"
#include "tests/dsl/mistakes.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Check seeded() {
  Check check;
  check.options.seed = random_seed();
  return check;
}

}  // namespace

TEST_CASE("a tile larger than its tensor is padded with what the copy says", "[copy][others]") {
  for (DType dtype : {F32, F16, I32, E5M2})
    for (bool shared : {false, true}) {
      const Kernel kernel = trace("pad", [&] {
        Dim n = dim("n");
        Tensor x = input("x", dtype, {n, n}), y = output("y", F32, {4, 64, 64});
        const Expr block = launch({4})[0];
        Tile tile = shared ? alloc_shared({64, 64}, dtype) : alloc_fragment({64, 64}, dtype);
        // Block 0 begins at the origin, the others stick out in front.
        copy(x(span(block % 2 * -3, 64), span(block / 2 * -5, 64)), tile, {.pad = -96});
        for (auto [i, j] : parallel(64, 64)) y(block, i, j) = cast(tile(i, j), F32);
      });
      INFO(name(dtype) << (shared ? " shared" : " fragment"));
      for (int64_t n : {60, 64, 1})
        run_exact(
            kernel, {{"n", n}},
            [](RandomBindings& bindings) { bindings.fill("x", [](const Shape&) { return 2; }); },
            [&](RandomBindings& bindings) {
              check_all(bindings, "y", {4, 64, 64}, [&](const Shape& index) {
                const int64_t i = index[1] - index[0] % 2 * 3, j = index[2] - index[0] / 2 * 5;
                return i >= 0 && i < n && j >= 0 && j < n ? 2.0 : -96.0;
              });
            });
    }
}

TEST_CASE("a constant part that reaches beyond its tile is refused with both numbers",
          "[copy][others]") {
  const auto beyond = [](int64_t start, int64_t length, const char* sentence) {
    expect_mistake_in_launch(sentence, [&](Mark& mark, const Expr&) {
      Tile s = alloc_shared({8}, F32);
      mark();
      fill(s(span(start, length)), 1);
    });
  };
  beyond(6, 6, "6");
  beyond(6, 6, "8");
  beyond(-1, 3, "-1");
  beyond(0, 9, "9");
}

TEST_CASE("a part of a fragment is filled, copied and added to alone", "[copy][others]") {
  const Kernel kernel = trace("part", [&] {
    Tensor y = output("y", F32, {2, 16, 24}), z = output("z", F32, {2, 24});
    const Expr block = launch({2})[0];
    Tile f = alloc_fragment({16, 24}, F32), part = alloc_fragment({8, 24}, F32);
    fill(f, 1);
    fill(f(span(3, 8), all), 7);
    fill(part, 9);
    copy(part(span(2, 2), span(5, 9)), f(span(12, 2), span(block, 9)));
    copy(f, y(block, all, all));
    Tile sums = alloc_fragment({24}, F32);
    fill(sums, 100);
    for (auto round : serial(2)) reduce_sum(part, sums(span(5 + round, 8)), 1, false);
    copy(sums, z(block, all));
  });
  run_exact(kernel, {}, {}, [](RandomBindings& bindings) {
    check_all(bindings, "z", {2, 24}, [](const Shape& index) {
      const int64_t i = index[1];
      return 100 + 24 * 9.0 * ((i >= 5 && i < 13 ? 1 : 0) + (i >= 6 && i < 14 ? 1 : 0));
    });
    check_all(bindings, "y", {2, 16, 24}, [](const Shape& index) {
      const int64_t j = index[2] - index[0];
      if (index[1] >= 12 && index[1] < 14 && j >= 0 && j < 9) return 9.0;
      return index[1] >= 3 && index[1] < 11 ? 7.0 : 1.0;
    });
  });
}

TEST_CASE("a parallel loop covers its own extents, not those of its smallest tile",
          "[parallel][others]") {
  const Kernel kernel = trace("extents", [&] {
    Tensor x = input("x", I32, {256}), y = output("y", I32, {256});
    launch({1});
    Tile small = alloc_shared({100}, I32), large = alloc_shared({256}, I32);
    Tile none = alloc_fragment({256}, I32);
    copy(x(span(0, 100)), small);
    copy(x, large);
    fill(none, 3);
    for (auto i : parallel(256))
      y(i) = large(255 - i) + select(i < 100, small(min(i, 99)), none(i));
  });
  run_exact(
      kernel, {},
      [](RandomBindings& bindings) {
        bindings.fill("x", [](const Shape& index) { return static_cast<double>(index[0]); });
      },
      [](RandomBindings& bindings) {
        check_all(bindings, "y", {256}, [](const Shape& index) {
          return static_cast<double>(255 - index[0] + (index[0] < 100 ? index[0] : 3));
        });
      });
}

TEST_CASE("every second column, of tensors and shared tiles", "[parallel][others]") {
  const Kernel kernel = trace("strided", [&] {
    Tensor x = input("x", F16, {8, 64}), y = output("y", F16, {8, 32}),
           z = output("z", F16, {8, 64});
    launch({1});
    Tile s = alloc_shared({8, 64}, F16), even = alloc_fragment({8, 32}, F16);
    copy(x, s);
    for (auto [i, j] : parallel(8, 32)) even(i, j) = s(i, 2 * j) + x(i, 2 * j + 1);
    copy(even, y);
    for (auto [i, j] : parallel(8, 32)) {
      z(i, 2 * j) = even(i, j);
      z(i, 2 * j + 1) = -even(i, j);
    }
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

TEST_CASE("columns that begin anywhere, in tensors and shared tiles of any pitch",
          "[copy][others]") {
  for (int64_t width : {40, 33, 24}) {
    const Kernel kernel = trace("columns", [&] {
      Tensor x = input("x", F16, {24, 50}), y = output("y", F16, {10, 24, 50});
      Tensor line = output("line", F16, {10, 60});
      const Expr block = launch({10})[0];
      Tile wide = alloc_shared({24, width + 10}, F16), part = alloc_shared({24, width}, F16);
      Tile vector = alloc_fragment({50}, F16);
      fill(wide, 1);
      copy(x(all, span(block, width)), part);
      copy(part, wide(all, span(block, width)));
      copy(x(all, span(9, width)), wide(all, span(10 - block, width)));
      copy(wide(all, span(block, width)), y(block, all, span(block, width)));
      copy(wide(3, span(1, 23)), vector(span(block, 23)));
      fill(vector(span(0, 1)), 1);
      copy(x(block, all), vector);
      copy(vector, line(block, span(block, 50)));
    });
    INFO(width);
    CHECK(check_lowered(kernel, {seeded()}) == "");
  }
}

TEST_CASE("widths with remainders and large loops need no special layout", "[parallel][others]") {
  for (int64_t width : {229, 48, 96, 7}) {
    const Kernel kernel = trace("widths", [&] {
      Tensor x = input("x", F32, {5, width}), y = output("y", F32, {5, width});
      launch({1});
      Tile tile = alloc_fragment({5, width}, F32), sums = alloc_fragment({5}, F32);
      Tile columns = alloc_fragment({width}, F32), only_set = alloc_fragment({width, 5}, F32);
      fill(only_set, 4);
      copy(x, tile);
      reduce_sum(tile, sums, 1);
      reduce_max(only_set, columns, 1);
      for (auto [i, j] : parallel(5, width)) tile(i, j) = tile(i, j) * columns(j) + sums(i);
      copy(tile, y);
    });
    INFO(width);
    CHECK(check_lowered(kernel, {seeded()}) == "");
  }
  const Kernel large = trace("large", [&] {  // 2^19 points
    Tensor x = input("x", I8, {512, 1024}), y = output("y", I8, {512, 1024});
    launch({1});
    for (auto [i, j] : parallel(512, 1024)) y(i, j) = x(i, 1023 - j);
  });
  CHECK(check_lowered(large, {seeded()}) == "");
}

// More tiles than memory would hold side by side; each is alive for a while, some across loops.
TEST_CASE("tiles that share memory keep what is still needed", "[shared][others]") {
  const Kernel kernel = trace("lifetimes", [&] {
    Tensor x = input("x", F32, {4, 32, 32}), y = output("y", F32, {4, 32, 32});
    const Expr block = launch({4})[0];
    Tile kept = alloc_shared({32, 32}, F32), total = alloc_fragment({32, 32}, F32);
    copy(x(block, all, all), kept);
    clear(total);
    for (int step = 0; step < 5; ++step) {
      Tile a = alloc_shared({32, 32}, F32), b = alloc_shared({32, 32}, F32);
      Tile row = alloc_shared({32}, F32), late = alloc_shared({32, 32}, F32);
      for (auto [i, j] : parallel(32, 32)) a(i, j) = kept(j, i) + cast(i, F32);
      for (auto round : serial(3)) {
        when(round != block, [&] {
          for (auto [i, j] : parallel(32, 32)) b(i, j) = a(31 - i, j);
          reduce_max(b, row, 0);
          for (auto [i, j] : parallel(32, 32)) a(i, j) = b(j, 31 - i) - row(i) * 0.5f;
        });
        copy(a, late);
      }
      for (auto [i, j] : parallel(32, 32)) total(i, j) += late(j, i) + a(i, j);
      for (auto [i, j] : parallel(32, 32))
        kept(i, j) = min(max(kept(i, j) - late(31 - i, j), -64.f), 64.f);
    }
    copy(total, y(block, all, all));
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

TEST_CASE("numbers and sizes beyond 2^31", "[scalar][others]") {
  const Kernel kernel = trace("numbers", [&] {
    Tensor x = input("x", I64, {40}), y = output("y", I64, {40}), z = output("z", I64, {3});
    launch({1});
    Var sum(I64, 1);
    for (auto i : serial(40)) {
      sum = sum * 3 + 5000000000;
      y(i) = x(i) * 4294967296 + cast(i, I64) * 3000000000;
    }
    z(0) = sum;
    z(1) = cast(cast(sum, I32), I64);
    z(2) = floordiv(sum, -7000000000);
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

// Two rows 2^31 + 8 elements apart, in memory of which only a few pages are touched.
TEST_CASE("rows more than 2^31 elements apart", "[copy][others]") {
  constexpr int64_t kStride = (int64_t{1} << 31) + 8;
  constexpr size_t kBytes = static_cast<size_t>(kStride) + 64;
  if (!on_host()) return;
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    WARN("not tested: no address space");
    return;
  }
  auto* bytes = static_cast<int8_t*>(memory);
  for (int64_t j = 0; j < 48; ++j) bytes[j] = static_cast<int8_t>(j), bytes[kStride + j] = 0;
  Kernel kernel = trace("far", [&] {
    Tensor x = inout("x", I8, {2, 48});
    launch({1});
    Tile row = alloc_shared({48}, I8);
    copy(x(0, all), row);
    copy(row, x(1, all));
    for (auto i : parallel(16)) x(1, i) = x(1, i) + 1;
  });
  run_passes(kernel, pipeline_for(Tier::Host));
  for (const Level& level : levels()) {
    Bindings bindings;
    bindings.tensors["x"] = {memory, I8, {2, 48}, {kStride, 1}};
    level.compile(kernel)(bindings);
    for (int64_t j = 0; j < 48; ++j) {
      INFO(level.name << " " << j);
      CHECK(bytes[kStride + j] == j + (j < 16 ? 1 : 0));
      bytes[kStride + j] = 0;
    }
  }
  munmap(memory, kBytes);
}
