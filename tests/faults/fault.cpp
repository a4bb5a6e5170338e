#include "tests/faults/fault.h"

#include <map>
#include <stdexcept>

namespace kiln {
namespace faults {
namespace {

std::map<std::string, size_t, std::less<>> numbers;
std::span<Mark> marks;
size_t on = kNone;

}  // namespace

void declare(std::span<const std::string> names, std::span<Mark> asked) {
  for (size_t i = 0; i < names.size(); ++i) numbers[names[i]] = i;
  marks = asked;
}

void switch_on(size_t which) {
  on = which;
}

}  // namespace faults

bool fault(std::string_view name) {
  const auto found = faults::numbers.find(name);
  if (found == faults::numbers.end())
    throw std::logic_error("no fault '" + std::string(name) + "'");
  faults::marks[found->second].store(1, std::memory_order_relaxed);
  return found->second == faults::on;
}

}  // namespace kiln
