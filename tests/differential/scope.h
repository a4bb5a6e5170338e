// What a generated program may use at a point.
#pragma once

#include <vector>

#include "ir/builder.h"
#include "tests/differential/random.h"

namespace kiln::differential {

inline constexpr int kMaxTrips = 4;

// What floats hold. Small: integers of at most 4, which a gemm or a sum may take. Sum: what such a
// gemm or sum gives, to which small numbers may be added in any order. Wild: anything.
enum class Range { Small, Sum, Wild };

struct TileInfo {
  Value value;
  Space space = Space::Shared;
  DType dtype = F32;
  Shape shape;
  Range range = Range::Wild;  // of an integer type: Wild
};

struct TensorInfo {
  Value value;
  DType dtype = F32;
  Shape shape;  // kDynamic for what is known at launch
  Range range = Range::Wild;
};

struct Scope {
  std::vector<TensorInfo> tensors;  // to read
  std::vector<TileInfo> tiles;      // wholly written; of rank 0, variables
  std::vector<Value> scalars;       // i32, the same for the whole block
  std::vector<Value> params;        // of any dtype
  TensorInfo mask, list;            // [blocks, kMaxTrips]
};

// A part of storage.
struct Part {
  Value value;
  Shape shape;
};

// Views of tiles and tensors: slices of slices, at constant indices inside or at traced ones that
// may stick out.
class Views {
 public:
  Views(Builder& builder, Random& random, const Scope& scope)
      : builder_(builder), random_(random), scope_(scope) {}

  Value small(int64_t low, int64_t high) {
    return builder_.constant(I32, random_.between(low, high));
  }
  Value traced(int64_t low, int64_t high);  // a number between them that depends on a scalar
  Value near(int64_t low, int64_t high);    // likewise, or a scalar, moved a little

  // A part of a tile of at most its extents; the tile itself, sometimes.
  Part of(const TileInfo& tile, bool may_stick_out);
  // A part of `shape` inside a tile that is at least as large.
  Value part(const TileInfo& tile, const Shape& shape, bool may_stick_out);
  // A part of a tensor whose extents other than 1 are `shape`; none if its rank is too low.
  Value of(const TensorInfo& tensor, const Shape& shape);

 private:
  Value index(int64_t extent, int64_t size, bool may_stick_out);

  Builder& builder_;
  Random& random_;
  const Scope& scope_;
};

}  // namespace kiln::differential
