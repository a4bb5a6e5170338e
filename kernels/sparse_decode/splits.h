// How a decode call is split over thread blocks, and how parts are merged.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/array.h"

namespace kiln {

inline constexpr int64_t kMostSplits = 128;         // of a sequence
inline constexpr int64_t kMostListedBlocks = 1024;  // of a split

// What the rule looks at.
struct SplitShape {
  int64_t tiles = 1;  // tiles of query rows, over batch and kv heads
  int64_t multiprocessors = 1;
  int64_t blocks = 1;       // of keys, at most, for each
  int64_t query_tiles = 1;  // of one kv head
  int64_t bytes = 0;        // of the keys and values that a kv head reads
  bool causal_or_local = true;
  int64_t most = kMostSplits;
  bool operator==(const SplitShape&) const = default;
};
// The split rule of FlashAttention-3's decode (hopper/heuristics.h): 1 where tiles fill 80 % of the
// multiprocessors or there are at most 4 blocks; else the fewest whose waves are 85 % as full as
// the best. All at least 1.
int64_t split_rule(const SplitShape& shape);

// Of a sequence with n blocks (at most) to read, min(splits, ⌈n / quota⌉) splits get their share.
struct SplitPlan {
  int64_t splits = 1, quota = 1;
};

// Attention over disjoint sets of keys, of the same queries: o [rows, dim_v] f32 and its
// natural-log LSE [rows], −inf where the set is empty.
struct LsePart {
  Memory o, lse;
};
struct Merged {
  Array o, lse;  // f32, [rows, dim_v] and [rows]
};
// Attention over their union, in host memory: weights exp(lse − largest), 0 for empty parts; a row
// of empty parts gives 0 and −inf. UserError if shapes differ or there is no part.
Merged lse_merge(const std::vector<LsePart>& parts);

// Conventions of others: logarithms to base 2; +inf for a row that saw nothing. In place, f32.
void lse_to_base2(Array& lse);
void lse_from_base2(Array& lse);
void lse_empty_to_plus_infinity(Array& lse);
void lse_empty_from_plus_infinity(Array& lse);

}  // namespace kiln
