// Faults in the compiler that can be switched on as the program runs. Copies of the compiler's
// sources ask about them (mutate.py).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

// Is the fault of this name switched on? That it was asked is noted.
bool fault(std::string_view name);

namespace faults {

using Mark = std::atomic<uint8_t>;
inline constexpr size_t kNone = SIZE_MAX;

// To be called first: the faults' names, and for each a mark that says whether it was asked about.
void declare(std::span<const std::string> names, std::span<Mark> asked);

void switch_on(size_t which);  // alone; kNone: none

}  // namespace faults
}  // namespace kiln
