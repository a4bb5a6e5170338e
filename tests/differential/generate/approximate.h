// Functions that devices approximate, made exact again: of a finite set of arguments, rounded to a
// grid whose boundaries no value comes near.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace kiln::differential {

// ⌊scale · f(x) + offset⌋ for the integers x from `low` to `high`.
struct Approximation {
  OpCode code;
  int64_t low, high;
  double scale, offset;
};
const std::vector<Approximation>& approximations();

// That of `argument`, a float of 16 bits or more that is an integer from −4 to 4.
Value approximated(Builder& builder, const Approximation& how, Value argument);

// In an online softmax over whole numbers from −4 to 4, a scale of 16 or more makes every weight
// but the largest ones' vanish: l counts these.
inline constexpr int64_t kMostWeights = 128;          // that l counts
inline constexpr double kQuotientOffset = 0x1.54p-2;  // ⌊a / l + this⌋, a an integer
inline constexpr double kLseOffset = 0x1.4p-4;        // ⌊an integer + ln l + this⌋

}  // namespace kiln::differential
