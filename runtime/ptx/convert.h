// Rounding and conversion of single values, any type to any type: slow and complete.
#pragma once

#include <cstdint>

#include "runtime/ptx/types.h"

namespace kiln::ptx {

enum class Rounding : uint8_t { Nearest, Zero, Down, Up, NearestAway };

struct Conversion {
  Type to, from;
  Rounding rounding = Rounding::Nearest;
  bool integral = false;  // of floats: to an integral value
  bool flushes = false, saturates = false, finite = false, relu = false;
};

// Bits of `from` in, bits of `to` out, both in the low bits.
uint64_t convert_bits(const Conversion& how, uint64_t bits);

// x to a float of so many fraction bits and smallest normal exponent; infinity beyond `largest`
// unless the rounding goes toward zero there.
double round_float(double x, int fraction, int least_exponent, double largest, Rounding rounding);

}  // namespace kiln::ptx
