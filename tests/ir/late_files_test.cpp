// The kernels of tests/files/late with small tiles, for every number of trips up to twice around
// the ring: every mode and order of agents gives one result, and the right one.
#include <catch2/catch.hpp>

#include "tests/ir/late_modes.h"
#include "tests/ir/late_small.h"
#include "tests/support/random_bindings.h"

using namespace kiln;
using namespace kiln::test;
using testing::RandomBindings;

namespace {

// Bit for bit: the inputs are small integers.
void expect_in_all_modes(const Kernel& kernel, const RandomBindings& inputs,
                         RandomBindings& expected) {
  for (const InterpOptions& options : all_modes(50)) {
    RandomBindings actual = inputs;
    INFO(kernel.name << " " << described(options));
    interpret(kernel, actual.bindings(), options);
    CHECK(actual.damage() == "");
    CHECK(actual.difference(expected) == "");
  }
}

// A kernel that multiplies the rows of x.
void check_rows(const Kernel& kernel, int64_t rows_of_tile, double factor) {
  for (int64_t trips = 0; trips <= 2 * slots_of(kernel) + 1; ++trips)
    for (int64_t missing : {0, 1}) {
      const int64_t n = std::max<int64_t>(0, trips * rows_of_tile - missing);
      const RandomBindings inputs(kernel, {{"n", n}});
      RandomBindings expected = inputs;
      expected.fill("y", [&](const Shape& at) { return factor * expected.at("x", at).f; });
      INFO(n << " rows");
      expect_in_all_modes(kernel, inputs, expected);
    }
}

// c[m, n] = a · b, whose columns are rows of `b` if it is transposed.
void check_product(const Kernel& kernel, const std::map<std::string, int64_t>& dims,
                   bool transposed) {
  const RandomBindings inputs(kernel, dims);
  RandomBindings expected = inputs;
  expected.fill("c", [&](const Shape& at) {
    double sum = 0;
    for (int64_t k = 0; k < dims.at("k"); ++k)
      sum += expected.at("a", {at[0], k}).f *
             expected.at("b", transposed ? Shape{at[1], k} : Shape{k, at[1]}).f;
    return sum;
  });
  INFO(dims.at("m") << " x " << dims.at("n") << " x " << dims.at("k"));
  expect_in_all_modes(kernel, inputs, expected);
}

}  // namespace

TEST_CASE("small late files: a copy ring", "[interp][late]") {
  check_rows(small_late_kernel(KILN_TESTS_DIR, "copy_ring.tile", {{0, 0}, {1, 1}, {64, 4}}), 4, 2);
}

TEST_CASE("small late files: an epilogue through a dead slot", "[interp][late]") {
  check_rows(
      small_late_kernel(KILN_TESTS_DIR, "dead_slot.tile", {{0, 0}, {1, 1}, {64, 4}, {128, 8}}), 4,
      0.5);
}

TEST_CASE("small late files: a stream with messages", "[interp][late]") {
  const Kernel kernel =
      small_late_kernel(KILN_TESTS_DIR, "messages.tile", {{0, 0}, {1, 1}, {2, 2}, {8, 2}, {32, 4}});
  for (int64_t n = 0; n <= 2 * slots_of(kernel) + 1; ++n)
    for (bool gaps : {false, true}) {
      RandomBindings inputs(kernel, {{"n", n}, {"rows", 5}});
      const auto listed = [&](int64_t i) { return gaps && i % 3 == 1 ? -1 : i * 2 % 5; };
      inputs.fill("list", [&](const Shape& at) { return static_cast<double>(listed(at[0])); });
      int64_t sent = 0;
      for (int64_t i = 0; i < n; ++i) sent += listed(i) >= 0;
      RandomBindings expected = inputs;
      expected.fill("y", [&](const Shape& at) {
        const int64_t row = listed(at[0]);
        return row < 0 ? expected.at("y", at).f : expected.at("x", {row, at[1]}).f;
      });
      expected.fill("halves",
                    [&](const Shape& at) { return static_cast<double>((sent + 1 - at[0]) / 2); });
      INFO(n << " entries, " << sent << " sent");
      expect_in_all_modes(kernel, inputs, expected);
    }
}

TEST_CASE("small late files: a gemm with a producer", "[interp][late]") {
  const Kernel kernel =
      small_late_kernel(KILN_TESTS_DIR, "gemm_producer.tile", {{0, 0}, {63, 3}, {64, 4}});
  for (int64_t trips = 0; trips <= 2 * slots_of(kernel) + 1; ++trips) {
    check_product(kernel, {{"m", 4}, {"n", 4}, {"k", 4 * trips}}, false);
    check_product(kernel, {{"m", 7}, {"n", 5}, {"k", std::max<int64_t>(0, 4 * trips - 3)}}, false);
  }
}

TEST_CASE("small late files: a gemm whose ring runs on across tiles", "[interp][late]") {
  const Kernel kernel = small_late_kernel(
      KILN_TESTS_DIR, "gemm.tile",
      {{0, 0}, {1, 1}, {16, 2}, {32, 2}, {127, 7}, {128, 8}, {255, 15}, {256, 16}, {384, 24}});
  for (int64_t slots = 0; slots <= 2 * slots_of(kernel) + 1; ++slots) {
    const int64_t k = std::max<int64_t>(0, 2 * slots - slots % 3), ctas = 1 + slots % 3;
    check_product(kernel, {{"m", 8}, {"n", 16}, {"k", k}, {"ctas", ctas}}, true);
    check_product(kernel, {{"m", 21}, {"n", 20}, {"k", k}, {"ctas", ctas}}, true);
  }
  check_product(kernel, {{"m", 0}, {"n", 16}, {"k", 4}, {"ctas", 1}}, true);
}
