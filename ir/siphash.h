// SipHash-2-4 with a 128-bit result: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input
// PRF", 2012, and its reference implementation.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kiln {

using Hash128 = std::array<uint64_t, 2>;  // the reference's 16 bytes as two little-endian words

Hash128 siphash128(std::string_view data, const Hash128& key);

}  // namespace kiln
