// What is asked of packed batches given in host memory.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"

namespace kiln::infllmv2 {

inline void require(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw UserError(fmt::format("{}: expected {} to {}, got {}", field, low, high, value));
}

inline void require_ends(const char* what, const Memory& ends) {
  require_dtype(what, ends, I32);
  require_rank(what, ends, 1, "batch + 1");
  if (ends.shape[0] < 1)
    throw UserError(fmt::format("{}: expected 1 entry or more, got none", what));
}

inline void require_longest(int64_t longest) {
  if (longest < 0)
    throw UserError(
        fmt::format("max_seqlen: expected the longest sequence's tokens, got {}", longest));
}

// The length of sequence b, as kernels take it.
inline int64_t length_of(const Memory& ends, int64_t b, int64_t most) {
  return std::clamp<int64_t>(load_int(ends, {b + 1}) - load_int(ends, {b}), 0, most);
}

}  // namespace kiln::infllmv2
