// Atomics: many points, and blocks, that meet in one element.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "tests/codegen/device_ops.h"
#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Check seeded(int64_t low = -4, int64_t high = 20) {
  Check check;
  check.options.seed = random_seed();
  check.options.odd_strides = true;
  check.options.low = low;
  check.options.high = high;
  return check;
}

using Atomic = Expr (*)(const Element&, Arg, Loc);
struct AtomicKind {
  const char* name;
  Atomic apply;
  bool bitwise;
};
constexpr AtomicKind kKinds[] = {{"add", atomic_add, false}, {"max", atomic_max, false},
                                 {"min", atomic_min, false}, {"and", atomic_and, true},
                                 {"or", atomic_or, true},    {"xor", atomic_xor, true}};

}  // namespace

TEST_CASE("histogram", "[atomic]") {
  for (int bins : {1, 16, 37}) {
    const Kernel kernel = trace("histogram", [&] {
      Dim n = dim("n");
      Tensor x = input("x", I32, {n});
      Tensor total = inout("total", I32, {bins});
      auto [block, y, z] = launch({ceildiv(n, 300)});
      Tile counts = alloc_shared({bins}, I32);
      clear(counts);
      for (auto part : serial(3))
        for (auto i : parallel(100)) {
          auto at = block * 300 + part * 100 + i;
          atomic_add(counts(select(at < n, x(at), -1)), 1);
        }
      for (auto bin : parallel(bins)) atomic_add(total(bin), counts(bin));
    });
    INFO(bins);
    for (int64_t n : {0, 1, 299, 1111}) {
      Check check = seeded(-3, bins + 2);
      check.dims["n"] = n;
      CHECK(check_lowered(kernel, {check}) == "");
    }
  }
}

TEST_CASE("atomics of every kind and dtype on tensors and shared tiles", "[atomic]") {
  for (DType dtype : {I32, U32, I64, U64, F32, F64})
    for (const AtomicKind& kind : kKinds) {
      if (kind.bitwise && is_float(dtype)) continue;
      const Kernel kernel = trace("kinds", [&] {
        Tensor x = input("x", dtype, {40, 50});
        Tensor at = input("at", I32, {40, 50});
        Tensor on_tensor = inout("on_tensor", dtype, {3, 17});
        Tensor start = input("start", dtype, {17}), on_tile = output("on_tile", dtype, {4, 17});
        auto [block, y, z] = launch({4});
        Tile tile = alloc_shared({17}, dtype);
        copy(start, tile);
        for (auto [i, j] : parallel(10, 50)) {
          auto value = x(block * 10 + i, j), where = at(block * 10 + i, j);
          kind.apply(on_tensor(i % 3, where), value, Loc::here());
          kind.apply(tile(where), value, Loc::here());
        }
        copy(tile, on_tile(block, all));
      });
      INFO(kind.name << " of " << name(dtype));
      CHECK(check_lowered(kernel, {seeded(-3, 18)}) == "");
    }
}

TEST_CASE("the old value, in and outside of a parallel", "[atomic]") {
  for (DType dtype : {I32, U64, F32, F64}) {
    const Kernel kernel = trace("old", [&] {
      Tensor x = input("x", dtype, {60});
      Tensor state = inout("state", dtype, {60}), old = output("old", dtype, {3, 60});
      Tensor log = output("log", dtype, {9});
      launch({1});
      Tile tile = alloc_shared({60}, dtype), before = alloc_fragment({60}, dtype);
      copy(x, tile);
      for (auto i : parallel(60)) {
        old(0, i) = atomic_exchange(state(59 - i), x(i));
        before(i) = atomic_add(tile(i), 2);
        old(2, i) = atomic_max(tile(i + 70), 1);  // outside: 0
      }
      copy(before, old(1, all));
      for (auto i : serial(9)) {
        auto was = atomic_add(tile(7), cast(i, dtype));
        log(i) = was + atomic_exchange(tile(8), was);
      }
      atomic_min(state(0), -100 + 200 * static_cast<int>(is_unsigned_int(dtype)));
    });
    INFO(name(dtype));
    CHECK(check_lowered(kernel, {seeded()}) == "");
  }
}

TEST_CASE("tickets: each block takes a place of its own", "[atomic]") {
  const Kernel kernel = trace("tickets", [&] {
    Tensor next = inout("next", I32, {1});
    Tensor taken = inout("taken", I32, {64});
    launch({64});
    auto place = atomic_add(next(0), 1);
    atomic_add(taken((place % 64 + 64) % 64), 1);
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

TEST_CASE("atomics between plain accesses", "[atomic]") {
  const Kernel kernel = trace("between", [&] {
    Tensor x = input("x", I32, {128}), at = input("at", I32, {128});
    Tensor y = output("y", I32, {5, 32});
    launch({1});
    Tile sums = alloc_shared({32}, I32), shifted = alloc_fragment({32}, I32);
    for (auto round : serial(5)) {
      clear(sums);
      for (auto i : parallel(128)) atomic_add(sums((at(i) + round) % 32), x(i));
      for (auto i : parallel(128)) atomic_xor(sums(at(i)), i);
      copy(sums, shifted);
      for (auto i : parallel(32)) sums(i) = shifted(i) * 2;
      for (auto i : parallel(64)) atomic_max(sums(i / 2), at(i));
      copy(sums, y(round, all));
    }
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

TEST_CASE("NaN and infinities in atomic maxima", "[atomic]") {
  for (DType dtype : {F32, F64})
    for (bool larger : {true, false}) {
      const Kernel kernel = trace("special", [&] {
        Tensor x = input("x", dtype, {200});
        Tensor y = inout("y", dtype, {10}), z = output("z", dtype, {10});
        launch({1});
        Tile tile = alloc_shared({10}, dtype);
        fill(tile, larger ? -infinity(dtype) : infinity(dtype));
        for (auto i : parallel(200)) {
          (larger ? atomic_max : atomic_min)(tile(i % 10), x(i), Loc::here());
          (larger ? atomic_max : atomic_min)(y(i % 10), x(i), Loc::here());
        }
        // Of two zeros either.
        for (auto i : parallel(10)) z(i) = tile(i) + 1;
      });
      Check check = seeded(1, 20);
      check.options.specials = 0.3;
      check.tolerance = 0;
      CHECK(check_lowered(kernel, {check}) == "");
    }
}
