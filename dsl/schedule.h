// A wish of loops.
#pragma once

#include <cstdint>

namespace kiln {
inline namespace dsl {

// Of a loop in which one gemm needs what another gives, a wish that changes no result: whether the
// first is computed a round ahead (Overlap) or in its round (Serial). Auto: if registers allow.
enum class Schedule : uint8_t { Auto, Serial, Overlap };

}  // namespace dsl
}  // namespace kiln
