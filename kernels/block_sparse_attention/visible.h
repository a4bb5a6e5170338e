// What a tile of queries sees of its sequence's keys, inside the kernel.
#pragma once

#include <array>
#include <optional>

#include "dsl/dsl.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/sequence_tiles.h"

namespace kiln {

// The kinds of heads of a kernel that has them mixed.
struct HeadTypes {
  Tensor head_mask_type;                 // i32 [heads]
  std::optional<Tensor> streaming_info;  // i32 [heads, 2]

  HeadTypes(const AttentionConfig& config, const Expr& heads);
  Expr is_sparse(const Expr& head) const { return head_mask_type(head) > 0; }
  // Of a sparse head: how many come before it.
  Expr plane(const Expr& head) const;
  // Ends the run with an error if a head is of no kind.
  void check(const Expr& heads, const std::optional<Expr>& planes) const;

 private:
  Expr sparse_before(const Expr& end) const;
  Streaming streaming_;
};

// The keys of a tile of queries, block_m from first_query on.
class Visible {
 public:
  Visible(const AttentionConfig& config, const Sequence& sequence, const HeadTypes* types,
          const Expr& head, const Expr& first_query);

  const Expr& first_query() const { return first_query_; }
  // Keys 0 … n-1 are visible to a row of the tile, to any of its rows; below 1 if to none.
  Expr keys_of_row(Arg row) const;
  Expr keys() const;
  Expr blocks(int64_t block) const { return ceildiv(keys(), block); }

  // Of a head that is not sparse, the tiles of block_n keys: 0 … tiles - 1, those from `head_end`
  // on `gap` further.
  struct Range {
    Expr tiles, head_end, gap;
    Expr tile(const Expr& n) const { return select(n < head_end, n, n + gap); }
  };
  Range range() const;
  // s = -inf where a row must not look; only tiles that cross an end have such places.
  void mask_scores(const Tile& s, const Expr& first_key) const;
  // Values beyond the sequence's end become 0, for 0 · NaN is NaN. Of tiles that cross it.
  void clear_beyond(const Tile& values, const Expr& first_key) const;

 private:
  // The last block of keys that the row of blocks sees, plus 1.
  Expr end_block() const;
  // Of a streaming head: where the tiles that the sink holds end, and those of the window begin.
  std::array<Expr, 2> window_tiles() const;
  Expr window_begin(Arg row) const;  // of streamed tokens: the first key of the row's own

  const AttentionConfig& c_;
  const Sequence& sequence_;
  Expr first_query_;
  std::optional<Expr> streams_, sink_, local_;
};

}  // namespace kiln
