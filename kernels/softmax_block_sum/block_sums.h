// The softmax of a tile of rows, seen tile of columns by tile of columns, twice; and the sums of
// its blocks.
#pragma once

#include <functional>

#include "dsl/dsl.h"

namespace kiln {

class BlockSums {
 public:
  // scale: f32. Row i of the tile sees the columns 0 … seen(i) − 1 of all: 0 if it counts nothing.
  using Seen = std::function<Expr(const Expr& i)>;
  BlockSums(int64_t tile, int64_t block, const Expr& scale, const Seen& seen);

  // First every tile of columns is observed, then each is summed: scores (fragment f32, tile x
  // tile, changed) from column `first` on.
  void observe(const Expr& first, const Tile& scores);
  // Returns the sums of its blocks (fragment f32, tile / block on either axis).
  const Tile& sum(const Expr& first, const Tile& scores);

 private:
  Expr weight(const Expr& score, const Expr& top) const;
  void mask(const Expr& first, const Tile& scores) const;

  int64_t tile_, block_;
  Expr scale_;
  Tile seen_;  // i32
  Tile top_, old_top_, total_, tile_total_;
  Tile by_column_, sums_;
};

}  // namespace kiln
