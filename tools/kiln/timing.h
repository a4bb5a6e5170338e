// How long a call takes.
#pragma once

#include <algorithm>
#include <vector>

#include "tools/kiln/common.h"

namespace kiln::cli {

struct Timing {
  double milliseconds = 0;
  int runs = 0;
};
// The median of five runs or more, up to a second of them; the first is not counted.
template <class Call>
Timing time(const Call& call) {
  call();
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || (total < 1000 && times.size() < 100);) {
    auto start = std::chrono::steady_clock::now();
    call();
    times.push_back(milliseconds_since(start));
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return {times[times.size() / 2], static_cast<int>(times.size())};
}

}  // namespace kiln::cli
