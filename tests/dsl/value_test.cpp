// Which dtypes widen to which, against the values themselves.
#include "dsl/value.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

namespace kiln {
namespace {

std::vector<double> values_of(DType dtype) {
  std::vector<double> values;
  if (dtype == F16 || dtype == BF16)
    for (int bits = 0; bits < 1 << 16; ++bits)
      values.push_back(from_bits16(dtype, static_cast<uint16_t>(bits)));
  if (dtype == E4M3 || dtype == E5M2)
    for (int bits = 0; bits < 1 << 8; ++bits)
      values.push_back(from_bits8(dtype, static_cast<uint8_t>(bits)));
  if (dtype == F32) values = {0x1.fffffep127, 0x1p-149, 0x1.000002p0};
  if (dtype == F64) values = {0x1.fffffffffffffp1023, 0x1p-1074, 0x1.0000000000001p0};
  return values;
}

TEST_CASE("a float dtype widens to those that hold all its finite values", "[value]") {
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      if (!is_float(from) || !is_float(to)) continue;
      bool exact = true;
      for (double value : values_of(from))
        if (std::isfinite(value) && round_to(to, value) != value) exact = false;
      INFO(name(from) << " to " << name(to));
      CHECK(widens(from, to) == exact);
    }
}

TEST_CASE("an integer dtype widens to those that hold its ends", "[value]") {
  for (DType from : kAllDTypes)
    for (DType to : kAllDTypes) {
      if (!is_int(from) || !is_int(to)) continue;
      const int bits = static_cast<int>(8 * size_of(from));
      const bool is_signed = is_signed_int(from);
      const uint64_t top = ~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0));
      const int target_bits = static_cast<int>(8 * size_of(to));
      const uint64_t target_top = ~uint64_t{0} >> (64 - target_bits + (is_signed_int(to) ? 1 : 0));
      INFO(name(from) << " to " << name(to));
      CHECK(widens(from, to) == (top <= target_top && (!is_signed || is_signed_int(to))));
    }
}

TEST_CASE("nothing widens across kinds", "[value]") {
  CHECK(!widens(I8, F32));
  CHECK(!widens(Bool, I32));
  CHECK(!widens(F16, I64));
  CHECK(widens(Bool, Bool));
}

}  // namespace
}  // namespace kiln
