// The sums of blocks of softmaxed scores, of a tile of rows that sees its columns once.
#pragma once

#include <functional>

#include "dsl/dsl.h"

namespace kiln {

// Of every tile of columns the sums of each row's blocks are kept relative to the row's maximum so
// far, and that maximum; at the end they are brought to the last one, divided by what they add up
// to, and those of a block's rows added. The row's own sum would take registers all along. Kept in
// memory, a place for each block of threads.
class TileSums {
 public:
  // rows x columns scores in blocks of block x block.
  struct Shape {
    int64_t rows, columns, block;
    int64_t blocks() const { return columns / block; }
    int64_t together() const;  // tiles whose sums are stored at once
  };
  // The calling launch has `places` blocks of threads, which see at most `tiles` tiles of columns.
  struct Kept {
    Tensor parts;  // f32 [places, rows, tiles · blocks of a tile]
    Tensor tops;   // f32 [places, rows, tiles]
  };
  static Kept keep(const Shape& shape, const Expr& places, const Expr& tiles);

  TileSums(const Kept& kept, const Shape& shape, const Expr& scale, const Expr& place);

  // Columns of tile number `column`: scores are fragment f32, -inf where nothing is seen.
  void observe(const Expr& column, const Tile& scores);
  // store(sums, first): sums (fragment f32 [rows / block, some]) of the blocks from column of
  // blocks `first` on, for the tiles 0 … tiles - 1, all observed, and maybe some beyond.
  using Store = std::function<void(const Tile& sums, const Expr& first)>;
  void finish(const Expr& tiles, const Store& store) const;

 private:
  Kept kept_;
  Shape shape_;
  Expr scale_, place_;
  OnlineSoftmax softmax_;
  Tile which_, weights_, rounded_, rest_, sums_;
};

}  // namespace kiln
