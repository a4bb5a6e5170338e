// How an asynchronous copy between a tensor and shared memory goes through a tensor map. No LLVM
// here.
#pragma once

#include <vector>

#include "codegen/abi.h"
#include "ir/kernel.h"

namespace kiln {

// One instruction moves a box of the map; a tile of several boxes takes several.
struct BulkPiece {
  std::vector<int64_t> at;  // in the view of the tensor: where the box begins, an entry an axis
  int64_t offset = 0;       // bytes, from the beginning of the shared tile
};

struct BulkCopy {
  Value view;  // of the tensor
  Value tile;  // the slot or shared tile itself
  TensorMap map;
  std::vector<BulkPiece> pieces;  // of one warp
  // Where each of `warps` warps has its own rows, warp w is w · these further.
  int64_t warps = 1;
  size_t row_axis = 0;
  int64_t warp_rows = 0, warp_bytes = 0;
  int64_t bytes = 0;  // that all pieces fill
};

// Of a copy_async or a store_async in an agent of so many warps. UserError, with what is needed, if
// the hardware cannot copy so.
BulkCopy bulk_copy(const Kernel& kernel, const Op& op, int64_t warps);

struct BulkOp {
  const Op* op;
  Slot slot;  // of its map
};
// All of a launch, in the order of the ops.
std::vector<BulkOp> bulk_ops(const Kernel& kernel, const Op& launch);

}  // namespace kiln
