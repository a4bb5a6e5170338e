// How many random programs it takes to catch each fault.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/table.h"

namespace kiln::faults {

struct Plan {
  uint64_t first = 1;                     // seed; the others follow
  uint64_t limit = 2000;                  // programs
  int jobs = 1;                           // processes
  std::map<std::string, uint64_t> hints;  // by fault: a seed to try before all others
  std::vector<std::string> only;          // names; all faults if empty
};

struct Result {
  std::map<std::string, uint64_t> caught;  // by fault: the seed of the first program that shows it
  size_t missed = 0;                       // faults
  uint64_t broken = 0;                     // programs that fail without a fault
};

// Prints what it finds, a line a fault. A fault that its hint shows is not looked for any further.
Result measure(const std::vector<Fault>& table, const Plan& plan);

}  // namespace kiln::faults
