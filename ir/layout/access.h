// How the threads of a fragment reach the same tile in shared memory.
//
// With one address a thread, computed once, each register's offset is that address changed by
// constants: constants are XORed within a swizzle and added beyond it. For the k-steps of an
// operand in panels of 128 bytes the chunk number is XORed, for the next eight rows 1024 is added.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/layout/layout.h"

namespace kiln {

// offset(thread, register) = (offset(thread, register 0) ^ flip) + add, in elements.
struct OffsetStep {
  int64_t flip = 0;
  int64_t add = 0;
  bool operator==(const OffsetStep&) const = default;
};

// One step for each register of `fragment`, over any tile that contains `fragment`'s padded tile,
// stored injectively as `shared`. The fragment may begin at any multiple of `origins` (one an axis;
// 0, or left out: at 0) where it stays inside. Nothing if no constants are right for all threads
// and beginnings: then each register's offset is owner_formula of its coordinate.
std::optional<std::vector<OffsetStep>> offset_steps(const Layout& fragment, const Layout& shared,
                                                    const Coordinate& origins = {});

// The largest vector along `axis` that is consecutive registers as well as consecutive offsets, of
// at most `limit` elements.
int64_t access_width(const Layout& fragment, const Layout& shared, int axis, int64_t limit);

// Wavefronts of all accesses that one warp makes to move the fragment, in vectors of `width`
// elements along `axis`; copies included, what lies outside the tile of `shared` not.
int64_t access_wavefronts(const Layout& fragment, const Layout& shared, int axis, int64_t width,
                          int bytes, int64_t warp = 0);

}  // namespace kiln
