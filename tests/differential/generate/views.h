// Views of tiles and tensors: slices of slices, at constant indices inside or at traced ones that
// may stick out.
#pragma once

#include "tests/differential/generate/scope.h"

namespace kiln::differential {

// A part of storage.
struct Part {
  Value value;
  Shape shape;
};

class Views {
 public:
  Views(Builder& builder, Random& random, const Scope& scope)
      : builder_(builder), random_(random), scope_(scope) {}

  Value small(int64_t low, int64_t high) {
    return builder_.constant(I32, random_.between(low, high));
  }
  Value traced(int64_t low, int64_t high);  // a number between them that depends on a scalar
  Value near(int64_t low, int64_t high);    // likewise, or a scalar, moved a little
  Value far();  // near one of the ends of i32, known only when the program runs

  // A part of a tile of at most its extents; the tile itself, sometimes.
  Part of(const TileInfo& tile, bool may_stick_out);
  // A part of `shape` inside a tile that is at least as large.
  Value part(const TileInfo& tile, const Shape& shape, bool may_stick_out);
  // A part of a tensor whose extents other than 1 are `shape`; none if its rank is too low.
  Value of(const TensorInfo& tensor, const Shape& shape);
  // Rows of a tensor, to be picked from by number: any number of rows of extents `tail`, with
  // extents of 1 in front.
  Value rows_of(const TensorInfo& tensor, const Shape& tail);

 private:
  Value index(int64_t extent, int64_t size, bool may_stick_out);
  Value index_in(int64_t extent, int64_t size);  // of a tensor
  Value some_of(Value tensor, int axis);         // some of its elements along an axis but the last

  Builder& builder_;
  Random& random_;
  const Scope& scope_;
};

}  // namespace kiln::differential
