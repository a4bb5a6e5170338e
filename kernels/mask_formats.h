// Block masks as others keep them: conversions that lose nothing, on host memory, with 64-bit
// sizes. What is no mask of that format is a UserError that names the entry.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "kernels/masks.h"
#include "runtime/array.h"

namespace kiln {

// Of lists i32 counts [B, H, rows] and indices [B, H, rows, entries]: each count is within the
// entries, and that many indices are blocks of `cols`, ascending, none twice: what to_lists makes.
// UserError naming the first row that is otherwise.
void check_lists(const Memory& counts, const Memory& indices, int64_t cols);

// Compressed rows (CSR, or BSR without values): row r of [B · H · rows] has the columns
// indices[indptr[r]] … indices[indptr[r + 1] − 1].
struct BlockCsr {
  Array indptr;   // i64 [B · H · rows + 1]
  Array indices;  // i32 [entries], ascending in each row
};
BlockCsr to_csr(const Array& mask);  // [B, H, rows, cols], bool or i8
// indptr i32 or i64, indices i32 in any order; bool mask of that shape. FlashInfer's plan
// (BlockSparseAttentionWrapper) is one for all heads: a shape [1, 1, rows, cols]. UserError if
// indptr does not begin with 0, becomes smaller or does not end with the entries, or if an index is
// no column (FlashInfer itself lets `cols` pass) or comes twice in a row.
Array from_csr(const Memory& indptr, const Memory& indices, const Shape& shape);

// A bit a block: u64 [B, H, rows, ceil(cols / 64)], column c bit c mod 64 of word c / 64, from the
// lowest. Bits from `cols` on are 0, and are not looked at.
Array to_bits(const Array& mask);
Array from_bits(const Memory& words, int64_t cols);

// A mask of which some blocks are `full`: each query of them sees each key that is there, so that
// no element must be looked at. Both bool [B, H, rows, cols]; full only where the mask is.
struct SplitMask {
  Array mask, full;
};
// FlexAttention's BlockMask: kv_num_blocks i32 [B', H', rows] and kv_indices i32 [B', H', rows,
// entries] of partial blocks, and maybe the same of full ones; B' and H' are the batch and heads,
// or 1. FA-CuTe's mask_block_cnt, mask_block_idx, full_block_cnt and full_block_idx are the same.
// Entries behind a count are not looked at. UserError if a count is more than the entries, an index
// no column or twice in its row, or a block partial and full.
struct FlexMask {
  Memory kv_num_blocks, kv_indices;
  std::optional<Memory> full_kv_num_blocks = {}, full_kv_indices = {};
};
SplitMask from_flex(const FlexMask& flex, int64_t batch, int64_t heads, int64_t cols);
// The lists of a split mask: those of partial blocks, and of full ones.
struct FlexLists {
  BlockLists partial, full;
};
FlexLists to_flex(const SplitMask& split);

// The blocks of the grid by what a predicate says of their queries and keys (mask_mod): none that
// sees nothing, full where every query that is there sees every key that is there.
using ElementMask = std::function<bool(int64_t b, int64_t h, int64_t query, int64_t key)>;
SplitMask split_by(int64_t batch, int64_t heads, const BlockGrid& grid, const ElementMask& sees);

Array transposed(const Array& mask);  // [B, H, cols, rows]: which rows look at a column

// A mask of blocks `ratio` times as large: where any, or where all of the blocks are set that are
// there. The last ones may have fewer.
enum class CoarsenRule : uint8_t { Any, All };
Array coarsen(const Array& mask, BlockShape ratio, CoarsenRule rule);
// The opposite: [B, H, rows, cols] of smaller blocks, each as the block that it lies in. UserError
// if the mask has not ceil(rows / ratio.q) rows and ceil(cols / ratio.k) columns.
Array expand(const Array& mask, BlockShape ratio, int64_t rows, int64_t cols);

// All blocks that hold a key visible to their row (bottom-right), of a causal grid; else all.
Array create_causal_mask(int64_t batch, int64_t heads, const BlockGrid& grid);

}  // namespace kiln
