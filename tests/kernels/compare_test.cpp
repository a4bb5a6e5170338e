// The accuracy rule lets nothing through.
#include "kernels/compare.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "runtime/array.h"

using namespace kiln;

namespace {
using Values = std::vector<double>;
constexpr AccuracyRule kRule{1e-3, 2e-3};
}  // namespace

TEST_CASE("equal results agree", "[compare]") {
  Values x = {1, -2, 0, NAN, INFINITY, -INFINITY};
  Comparison result = compare(x, x, 3, kRule);
  CHECK(result.ok());
  CHECK(result.elements == 6);
  CHECK(result.worst_element == 0);
}

TEST_CASE("one element out of many is found", "[compare]") {
  Values r(1000, 100), x = r;
  x[777] = 100.3;  // within 1e-3 of the row's norm, beyond 2e-3 · 101
  Comparison result = compare(x, r, 1000, kRule);
  CHECK(!result.ok());
  CHECK(result.bad_elements == 1);
  CHECK(result.bad_rows == 0);
  CHECK(result.worst_index == 777);
  CHECK_THAT(result.str(), Catch::Contains("777"));
}

TEST_CASE("small errors everywhere break a row", "[compare]") {
  Values r(64, 1), x(64, 1.0015);
  Comparison result = compare(x, r, 32, kRule);
  CHECK(result.bad_elements == 0);
  CHECK(result.bad_rows == 2);
  CHECK(result.worst_row == Approx(0.0015));
}

TEST_CASE("a row of zeros must be zeros", "[compare]") {
  CHECK(!compare(Values{0, 1e-9}, Values{0, 0}, 2, kRule).ok());
  CHECK(compare(Values{0, -0.0}, Values{0, 0}, 2, kRule).ok());
}

TEST_CASE("NaN and infinities must stand in their places", "[compare]") {
  CHECK(!compare(Values{NAN}, Values{1}, 1, kRule).ok());
  CHECK(!compare(Values{1}, Values{NAN}, 1, kRule).ok());
  CHECK(!compare(Values{INFINITY}, Values{-INFINITY}, 1, kRule).ok());
  CHECK(!compare(Values{INFINITY}, Values{NAN}, 1, kRule).ok());
  CHECK(!compare(Values{0}, Values{-INFINITY}, 1, lse_accuracy_rule()).ok());
  CHECK(compare(Values{NAN, 1}, Values{NAN, 1.0005}, 2, kRule).ok());
}

TEST_CASE("rules by dtype", "[compare]") {
  CHECK(accuracy_rule(F16).row == 1.5e-3);
  CHECK(accuracy_rule(BF16).element == 1.6e-2);
  CHECK(accuracy_rule(F32).row == 1e-5);
}

TEST_CASE("strided memory is read in row-major order", "[compare]") {
  Array array(F32, {2, 3}, Values{0, 1, 2, 3, 4, 5});
  Memory transposed = array.view();
  transposed.shape = {3, 2};
  transposed.strides = {1, 3};
  CHECK(to_doubles(transposed) == Values{0, 3, 1, 4, 2, 5});
}
