// Does a result agree with its float64 reference?
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ir/memory.h"

namespace kiln {

// The accuracy rule, on results computed from the same rounded inputs: of each row
// |x - r|_2 <= row |r|_2, of each element |x - r| <= element (1 + |r|), without a single exception.
// NaN and infinities must stand in the same places. fp8 outputs are not covered.
struct AccuracyRule {
  double row = 0;
  double element = 0;
};
AccuracyRule accuracy_rule(DType dtype);  // of a result in that dtype
AccuracyRule lse_accuracy_rule();         // elements only

struct Comparison {
  int64_t elements = 0;
  int64_t bad_elements = 0, bad_rows = 0;  // that break the rule
  double worst_row = 0;                    // largest |x - r|_2 / |r|_2
  double worst_element = 0;                // largest |x - r|
  int64_t worst_index = 0;                 // where the rule is broken most, else the largest error

  bool ok() const { return bad_elements == 0 && bad_rows == 0; }
  std::string str() const;  // one line for people
};
Comparison compare(std::span<const double> got, std::span<const double> reference,
                   int64_t row_length, const AccuracyRule& rule);

std::vector<double> to_doubles(const Memory& memory);

}  // namespace kiln
