// What a generated program may use at a point.
#pragma once

#include <string>
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
  Value storage;              // the tile whose bytes these are

  bool shares_bytes(const TileInfo& other) const { return storage == other.storage; }
};

struct TensorInfo {
  Value value;
  DType dtype = F32;
  Shape shape;  // kDynamic for what is known at launch
  Range range = Range::Wild;
  bool is_stream = false;  // long, in rows of chunks
};

// A tensor that a launch uses for atomics alone. All blocks meet in it, with one kind, which
// commutes; or each block has `rows` of it to itself, and any kinds.
struct AtomicTensor {
  TensorInfo tensor;
  std::string kind;          // empty: any
  std::vector<Value> start;  // of the rows; the axis after is whole
  int64_t rows = 0;
};

// Elements in the 16 bytes that a copy moves at once.
inline int64_t chunk_of(DType dtype) {
  return 16 / static_cast<int64_t>(size_of(dtype));
}

struct Scope {
  std::vector<TensorInfo> tensors;  // to read
  std::vector<TileInfo> tiles;      // wholly written; of rank 0, variables
  std::vector<TileInfo> arrays;     // local tiles of the block, wholly written
  std::vector<Value> scalars;       // i32, the same for the whole block
  std::vector<Value> params;        // of any dtype
  std::vector<AtomicTensor> atomics;
  std::vector<AtomicTensor> owned;  // rows that a block reads and writes, of no kind of atomic
  TensorInfo mask, list;            // [blocks, kMaxTrips]
};

}  // namespace kiln::differential
