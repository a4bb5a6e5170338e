// Small arrays: the block's, and each point's own.
#include <catch2/catch.hpp>

#include "dsl/dsl.h"
#include "ir/print.h"
#include "passes/pipeline.h"
#include "tests/codegen/harness.h"
#include "tests/codegen/nvptx_support.h"

using namespace kiln;
using namespace kiln::testing;

namespace {

constexpr DType kDTypes[] = {F16, BF16, F32, F64, E4M3, E5M2, I8,  I16,
                             I32, I64,  U8,  U16, U32,  U64,  Bool};

std::string fault(const Kernel& kernel, Random& random, std::map<std::string, int64_t> dims = {}) {
  Check check = random.check();
  check.dims = std::move(dims);
  check.options.low = -9;
  check.options.high = 70;
  const std::string found = check_lowered(kernel, {check});
  return found.empty() && on_host() ? emulation_fault(kernel, random.target(), check) : found;
}

}  // namespace

TEST_CASE("an array of every dtype, the block's and a point's", "[local]") {
  Random random;
  for (DType dtype : kDTypes)
    for (int size : {1, 5, 64}) {
      INFO(name(dtype) << " " << size);
      const Kernel kernel = trace("arrays", [&] {
        Tensor x = input("x", dtype, {64}), at = input("at", I32, {4, 40});
        Tensor y = output("y", dtype, {4, 40}), z = output("z", dtype, {64});
        launch({1});
        Tile table = alloc_local({size}, dtype);
        for (auto i : unroll(size)) table(i) = x(i);
        for (auto i : serial(3)) table(at(0, i)) = x(at(1, i));  // out of range: not at all
        for (auto i : serial(64)) z(i) = table(i);
        for (auto [r, j] : parallel(4, 40)) {
          Tile own = alloc_local({size}, dtype);
          for (int i = 0; i < size; ++i) own(i) = x(size - 1 - i);
          own(at(r, j) - 1) = table(at(r, j));
          y(r, j) = own(at(3 - r, j));
        }
      });
      CHECK(fault(kernel, random) == "");
    }
}

TEST_CASE("arrays of several axes, in loops and branches", "[local]") {
  Random random;
  for (int round = 0; round < 6; ++round) {
    const int a = static_cast<int>(random(1, 4)), b = static_cast<int>(random(1, 4)),
              c = static_cast<int>(random(1, 4));
    INFO(a << "x" << b << "x" << c);
    const Kernel kernel = trace("axes", [&] {
      Dim n = dim("n");
      Tensor x = input("x", I32, {n, 3}), y = output("y", I32, {n}), z = output("z", I32, {n, 16});
      auto [block, by, bz] = launch({2});
      Tile counts = alloc_local({a, b, c}, I32);
      for (auto i : serial(a))
        for (auto j : serial(b))
          for (auto k : serial(c)) counts(i, j, k) = i * 100 + j * 10 + k;
      for (auto r : serial(n)) {
        Tile fresh = alloc_local({2, 2}, F32);
        fresh(0, 0) = 1.5f;
        for (int i = 1; i < 4; ++i) fresh(i / 2, i % 2) = fresh(0, 0) + i;
        when(
            x(r, 0) > 20,
            [&] {
              counts(x(r, 0) % a, x(r, 1), x(r, 2)) += 1;
              fresh(1, x(r, 0) % 2) = 7;
            },
            [&] { counts(0, b - 1, x(r, 1) % c) *= -1; });
        when(block == 0, [&] { y(r) = counts(x(r, 2) % a, x(r, 1) % b, x(r, 0) % c); });
        when(block == 1, [&] {
          for (auto i : parallel(16))
            z(r, i) = counts(i % a, i % b, r % c) * cast(fresh(i / 8, i % 2), I32);
        });
      }
    });
    CHECK(fault(kernel, random, {{"n", random(0, 12)}}) == "");
  }
}

TEST_CASE("a point's array in loops over fragments", "[local]") {
  Random random;
  const Kernel kernel = trace("top_of_row", [] {
    Tensor x = input("x", F32, {24, 8}), y = output("y", F32, {24, 3}), w = output("w", I32, {24});
    launch({1});
    Tile rows = alloc_shared({24, 8}, F32), best = alloc_fragment({24}, I32);
    copy(x, rows);
    for (auto i : parallel(24)) {
      Tile top = alloc_local({3}, F32), where = alloc_local({3}, I32);
      for (int k = 0; k < 3; ++k) {
        top(k) = -1000;
        where(k) = -1;
      }
      for (int j = 0; j < 8; ++j) {  // an insertion, written out
        Expr value = rows(i, j);
        for (int k = 2; k >= 0; --k) {
          Expr here = value > top(k);
          if (k < 2) {
            top(k + 1) = select(here, top(k), top(k + 1));
            where(k + 1) = select(here, where(k), where(k + 1));
          }
          top(k) = select(here, value, top(k));
          where(k) = select(here, j, where(k));
        }
      }
      for (int k = 0; k < 3; ++k) y(i, k) = top(k);
      best(i) = where(0);
    }
    copy(best, w);
  });
  CHECK(fault(kernel, random) == "");
}

TEST_CASE("constant indices leave no selects", "[local]") {
  Kernel kernel = trace("constants", [] {
    Tensor x = input("x", F32, {8}), y = output("y", F32, {8});
    launch({1});
    Tile a = alloc_local({2, 4}, F32);
    for (auto i : unroll(8)) a(i / 4, i % 4) = x(i);
    for (auto i : parallel(8)) {
      Tile own = alloc_local({2}, F32);
      own(0) = a(1, 2);
      own(1) = own(0) + a(0, 1);
      y(i) = own(1);
    }
  });
  run_passes(kernel, pipeline_for(Tier::Host), {.verify_each = true, .after_each = {}});
  const std::string text = print(kernel);
  INFO(text);
  CHECK(text.find("select") == std::string::npos);
  CHECK(text.find("local") == std::string::npos);
}
