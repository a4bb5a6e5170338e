// The sums of blocks of softmaxed scores, of a tile of rows that sees its columns once.
#pragma once

#include <functional>

#include "dsl/dsl.h"

namespace kiln {

// Of every tile of columns the sums of each row's blocks are kept relative to the row's maximum so
// far, and that maximum; at the end they are brought to the last one, divided by the row's sum, and
// those of a block's rows added. Kept in memory, a place for each block of threads.
class TileSums {
 public:
  // tile x tile scores in blocks of `block` (a power of two, at most 64). The calling launch has
  // `places` blocks of threads, which see at most `tiles` tiles of columns.
  struct Kept {
    Tensor parts;  // f32 [places, tile, tiles · blocks of a tile]
    Tensor tops;   // f32 [places, tile, tiles]
  };
  static Kept keep(int64_t tile, int64_t block, const Expr& places, const Expr& tiles);

  TileSums(const Kept& kept, int64_t tile, int64_t block, const Expr& scale, const Expr& place);

  // Columns of tile number `column`: scores are fragment f32, -inf where nothing is seen.
  void observe(const Expr& column, const Tile& scores);
  // store(sums, first): sums (fragment f32 [blocks of a tile, some]) of the blocks from column of
  // blocks `first` on, for the tiles 0 … tiles - 1, all observed, and maybe some beyond.
  using Store = std::function<void(const Tile& sums, const Expr& first)>;
  void finish(const Expr& tiles, const Store& store) const;
  static int64_t together(int64_t tile, int64_t block);  // tiles whose sums are stored at once

 private:
  Kept kept_;
  int64_t tile_, block_, blocks_;
  Expr scale_, place_;
  OnlineSoftmax softmax_;
  Tile which_, weights_, rounded_, rest_, sums_;
};

}  // namespace kiln
