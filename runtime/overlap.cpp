#include "runtime/overlap.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

namespace kiln {
namespace {

bool is_empty(const Memory& memory) {
  return std::find(memory.shape.begin(), memory.shape.end(), 0) != memory.shape.end();
}

// A tensor as equal runs of contiguous bytes, and a number that divides the distance of any two.
struct Runs {
  int64_t begin, length, period;  // period 0: there is one run
};

Runs runs_of(const Memory& memory) {
  int64_t element = static_cast<int64_t>(size_of(memory.dtype));
  std::vector<std::pair<int64_t, int64_t>> axes;  // distance in bytes, extent
  for (size_t axis = 0; axis < memory.shape.size(); ++axis)
    if (memory.shape[axis] > 1)
      axes.emplace_back(std::abs(memory.strides[axis]) * element, memory.shape[axis]);
  std::sort(axes.begin(), axes.end());
  Runs runs{byte_extent(memory).begin, element, 0};
  for (auto [distance, extent] : axes) {
    if (distance <= runs.length)
      runs.length = std::max(runs.length, distance * (extent - 1) + runs.length);
    else
      runs.period = std::gcd(runs.period, distance);
  }
  return runs;
}

}  // namespace

Extent byte_extent(const Memory& memory) {
  if (is_empty(memory)) return {};
  auto start = reinterpret_cast<intptr_t>(memory.data);
  int64_t element = static_cast<int64_t>(size_of(memory.dtype));
  int64_t low = start, high = start, reach = 0;
  bool overflow = __builtin_add_overflow(high, element, &high);
  for (size_t axis = 0; axis < memory.shape.size() && !overflow; ++axis) {
    int64_t& end = memory.strides[axis] < 0 ? low : high;
    overflow = __builtin_mul_overflow(memory.strides[axis], element, &reach) ||
               __builtin_mul_overflow(reach, memory.shape[axis] - 1, &reach) ||
               __builtin_add_overflow(end, reach, &end);
  }
  return overflow || low < 0 ? Extent{0, 0, false} : Extent{low, high, true};
}

bool may_overlap(const Memory& a, const Memory& b) {
  Extent of_a = byte_extent(a), of_b = byte_extent(b);
  if (of_a.begin >= of_b.end || of_b.begin >= of_a.end) return false;
  Runs x = runs_of(a), y = runs_of(b);
  int64_t period = std::gcd(x.period, y.period);
  if (period == 0) return true;
  // Modulo the period all runs of one tensor fall on one interval; compare the two on a circle.
  int64_t gap = ((y.begin - x.begin) % period + period) % period;
  return gap < x.length || gap + y.length > period;
}

}  // namespace kiln
