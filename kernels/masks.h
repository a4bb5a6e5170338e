// Block masks: which key blocks each query block sees. Builders from scores, conversions,
// densities.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/array.h"

namespace kiln {

// The block of a mask or lists: so many queries by so many keys. One number is a square.
struct BlockShape {
  int64_t q = 64, k = 64;
  constexpr BlockShape(int64_t edge) : q(edge), k(edge) {}
  constexpr BlockShape(int64_t queries, int64_t keys) : q(queries), k(keys) {}
  bool operator==(const BlockShape&) const = default;
};
std::string str(BlockShape block);  // "64", "64x128"
// The opposite. UserError naming `what`.
BlockShape block_shape(std::string_view what, std::string_view text);

// How attention of one head is cut into blocks. Causal is bottom-right: query i sees key j iff
// j <= i + seq_kv - seq.
struct BlockGrid {
  int64_t seq = 0, seq_kv = 0;
  BlockShape block = 64;
  bool causal = false;

  int64_t rows() const { return (seq + block.q - 1) / block.q; }
  int64_t cols() const { return (seq_kv + block.k - 1) / block.k; }
  int64_t visible_keys(int64_t query) const;  // keys 0 … n-1 are visible
  int64_t visible_cols(int64_t row) const;    // blocks 0 … n-1 hold a key that the row sees
};

// UserError unless it is bool or i8 [B, H, rows, cols].
void require_mask(const Array& mask);
// UserError unless its blocks have 1 or more queries and keys, and there is no less than none.
void require_grid(const BlockGrid& grid);

// Scores are [B, H, rows, cols] of any float dtype, masks are bool of that shape.
// The `k` largest of each row; of equal ones the lower index; NaN counts as -inf. All if k >= cols.
Array top_k_mask(const Array& scores, int64_t k);
// Scores strictly greater than the threshold.
Array threshold_mask(const Array& scores, double threshold);

// Clears blocks that the row cannot see: the lower triangle if causal and square.
void trim(Array& mask, const BlockGrid& grid);
// Sets the last two rows whole (`use_dense_for_last_block`); trim afterwards if causal.
void set_last_rows(Array& mask);

// Of a mask [B, H, rows, cols] (bool or i8) over all queries of a sequence, the rows of those after
// the first `past`: what a call on them takes. UserError unless past is whole blocks, at most all.
Array slice_rows(const Array& mask, int64_t past, int64_t block_q);

// Keeps the diagonal (last visible) block of each row and random visible ones up to `density` of
// all visible blocks of a head, to the nearest block; `seed` decides which.
Array random_mask(int64_t batch, int64_t heads, const BlockGrid& grid, double density,
                  uint64_t seed);
// Normally distributed f32 scores [B, H, rows, cols].
Array random_scores(int64_t batch, int64_t heads, const BlockGrid& grid, uint64_t seed);
// Importance of each block when nobody gives scores: the row-wise softmax, over visible blocks, of
// scale * (mean of the query block) . (mean of the key block). Future blocks get 0.
Array pooled_scores(const Memory& q, const Memory& k, const BlockGrid& grid, double scale);

// counts i32 [B, H, rows] and indices i32 [B, H, rows, longest], ascending, -1 behind each end.
struct BlockLists {
  Array counts, indices;
};
BlockLists to_lists(const Array& mask);
// The set of each list: the first `count` entries, without negatives and those >= cols.
Array from_lists(const Memory& counts, const Memory& indices, int64_t cols);

// Set blocks among the visible ones, and all visible ones, over all heads of a mask that may be
// larger than the grid.
struct BlockCount {
  int64_t selected = 0, visible = 0;
  double density() const { return visible ? static_cast<double>(selected) / visible : 0; }
};
BlockCount count_blocks(const Memory& mask, const BlockGrid& grid);

}  // namespace kiln
