// Which shared tiles of a launch are alive together, and where each can lie.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace kiln {

// A tile, or the ring of a channel, is alive from its first use to its last, counted in the region
// of its alloc: what an op with regions uses, it uses from beginning to end, so a loop keeps the
// tiles made before it.
struct SharedTile {
  OpId alloc;  // or channel
  int64_t bytes = 0, alignment = 1, offset = 0;
  int64_t first = 0, last = 0;  // in program order, both included

  bool alive_with(const SharedTile& other) const {
    return first <= other.last && other.first <= last;
  }
};

struct SharedPlan {
  std::vector<SharedTile> tiles;  // in program order
  int64_t bytes = 0;              // of the whole block
};

// Elements after which the next tile of a ring begins at whole chunks of memory.
int64_t chunk_of(DType dtype);

// UserError if a tile has no layout.
SharedPlan shared_plan(const Kernel& kernel, OpId launch);

// Bytes that a shared tile takes with its padding; UserError if it has no layout.
int64_t shared_bytes(const Kernel& kernel, const Op& alloc);

}  // namespace kiln
