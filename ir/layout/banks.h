// The cost of a warp's access to shared memory.
#pragma once

#include <cstdint>
#include <span>

namespace kiln {

inline constexpr int64_t kInactive = -1;  // a lane that takes no part

// Shared memory has 32 banks of 4 bytes and serves one word of each bank at a time, to any lanes
// that ask for it. A warp's accesses of 4 bytes or less are served together, those of 8 bytes in
// two halves of the warp, those of 16 bytes (also each matrix of ldmatrix) in four quarters; each
// part takes as many wavefronts as the busiest bank has different words. Returns their sum.
// addresses[lane] is in bytes, a multiple of `bytes` (1, 2, 4, 8 or 16), or kInactive.
int64_t wavefronts(std::span<const int64_t> addresses, int64_t bytes);

// The least that as many bytes can take: the parts that have an active lane.
int64_t least_wavefronts(std::span<const int64_t> addresses, int64_t bytes);

}  // namespace kiln
