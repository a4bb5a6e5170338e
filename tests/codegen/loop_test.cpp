// Loops with exits: their conditions are known only while the kernel runs.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "tests/codegen/device_ops.h"
#include "tests/codegen/harness.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

Check seeded(int64_t low = 1, int64_t high = 40) {
  Check check;
  check.options.seed = random_seed();
  check.options.low = low;
  check.options.high = high;
  return check;
}

}  // namespace

TEST_CASE("while over scalars", "[loop]") {
  const Kernel kernel = trace("collatz", [&] {
    Dim n = dim("n");
    Tensor x = input("x", I32, {n}), steps = output("steps", I32, {n});
    auto [block, y, z] = launch({n});
    Var value = Expr(x(block)), count = 0;
    while_([&] { return value > 1; },
           [&] {
             value = select(value % 2 == 0, value / 2, 3 * value + 1);
             count += 1;
           });
    steps(block) = count;
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

TEST_CASE("several exits with tails", "[loop]") {
  const Kernel kernel = trace("exits", [&] {
    Tensor x = input("x", I32, {100}), y = output("y", I32, {20, 3});
    auto [block, b, c] = launch({20});
    Var at = Expr(block * 5), sum = 0, why = 0;
    loop([&] {
      exit_if(at >= 100, [&] { why = 1; });
      auto value = x(at);
      sum += value;
      exit_if(sum > 60, [&] {
        why = 2;
        when(value > 20, [&] { why = 3; });
      });
      at += 1;
      exit_if(value == 7);
    });
    y(block, 0) = at;
    y(block, 1) = sum;
    y(block, 2) = why;
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

TEST_CASE("tiles that change from round to round", "[loop]") {
  for (bool shared : {false, true}) {
    const Kernel kernel = trace("diffuse", [&] {
      Tensor x = input("x", F32, {7, 64}), y = output("y", F32, {7, 64});
      Tensor rounds = output("rounds", I32, {7});
      auto [block, b, c] = launch({7});
      Tile now = shared ? alloc_shared({64}, F32) : alloc_fragment({64}, F32);
      Tile left = alloc_shared({64}, F32), most = alloc_shared({1}, F32);
      copy(x(block, all), now);
      Var count = 0;
      loop([&] {
        copy(now, left);
        // The sum of neighbours, halved: integers stay exact for a while.
        for (auto i : parallel(64)) now(i) = (left(i) + left((i + 1) % 64)) * 0.5f;
        reduce_max(now, most, 0);
        count += 1;
        exit_if(most(0) < 24.f || count == 6);
        when(count % 2 == 0, [&] {
          for (auto i : parallel(64)) now(i) = now(i) - 1.f;
        });
      });
      copy(now, y(block, all));
      rounds(block) = count;
    });
    CHECK(check_lowered(kernel, {seeded()}) == "");
  }
}

TEST_CASE("copies and gemms in a loop, and loops in loops", "[loop]") {
  const Kernel kernel = trace("blocks", [&] {
    Dim n = dim("n");
    Tensor a = input("a", F16, {32, n}), w = input("w", F16, {n, 16});
    Tensor limit = input("limit", I32, {4});
    Tensor y = output("y", F32, {4, 32, 16}), seen = output("seen", I32, {4});
    const Expr block = launch({4})[0];
    Tile ta = alloc_shared({32, 16}, F16), tw = alloc_shared({16, 16}, F16);
    Tile acc = alloc_fragment({32, 16}, F32), row = alloc_fragment({32}, F32);
    Tile top = alloc_shared({1}, F32);
    Var total = 0;
    clear(acc);
    for (auto outer : serial(2)) {
      Var k = 0;
      loop([&] {
        exit_if(k >= n);
        copy(a(all, span(k, 16)), ta);
        copy(w(span(k, 16), all), tw);
        gemm(ta, tw, acc);
        reduce_max(acc, row, 1);
        reduce_max(row, top, 0);
        exit_if(top(0) > cast(limit(block), F32) * 100, [&] { clear(ta); });
        Var inner = 0;
        while_([&] { return inner < outer + 1; },
               [&] {
                 inner += 1;
                 total += inner;
               });
        k += 16;
      });
      total += k;
    }
    copy(acc, y(block, all, all));
    seen(block) = total;
  });
  for (int64_t n : {0, 5, 16, 70}) {
    Check check = seeded(1, 6);
    check.dims["n"] = n;
    INFO(n);
    CHECK(check_lowered(kernel, {check}) == "");
  }
}

TEST_CASE("a loop that leaves in its first round, or by a constant", "[loop]") {
  const Kernel kernel = trace("first", [&] {
    Tensor x = input("x", F32, {32}), y = output("y", F32, {3, 32});
    launch({1});
    Tile tile = alloc_fragment({32}, F32);
    copy(x, tile);
    loop([&] {
      exit_if(true, [&] {
        for (auto i : parallel(32)) tile(i) = tile(i) + 1.f;
      });
      clear(tile);
    });
    copy(tile, y(0, all));
    Var round = 0;
    loop([&] {
      exit_if(false);
      for (auto i : parallel(32)) tile(i) = tile(i) * 2.f;
      round += 1;
      exit_if(round == 3);
    });
    copy(tile, y(1, all));
    copy(x, y(2, all));
  });
  CHECK(check_lowered(kernel, {seeded()}) == "");
}

TEST_CASE("atomics in a loop: work is taken until there is none", "[loop]") {
  const Kernel kernel = trace("take", [&] {
    Dim n = dim("n");
    Tensor next = inout("next", I32, {1}), taken = inout("taken", I32, {n});
    launch({5});
    loop([&] {
      auto item = atomic_add(next(0), 1);
      exit_if(item >= n);
      atomic_add(taken(item), 1);
    });
  });
  Check check = seeded(0, 0);
  check.dims["n"] = 33;
  CHECK(check_lowered(kernel, {check}) == "");
}
