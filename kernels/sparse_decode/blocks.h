// Which blocks a split reads: made in shared memory by all threads before its work.
#pragma once

#include <functional>

#include "dsl/dsl.h"

namespace kiln {

// Of the places 0, 1, … those that are `part` modulo `parts`; none if part ≥ parts.
struct Share {
  Expr part, parts;
  Expr of(const Expr& count) const;  // how many of the places below count
};

// A row of selections: block indices in any order (a set: negative ones and those at or above
// `limit` skipped, duplicates once), or a mask of blocks.
struct BlockRow {
  std::function<Expr(const Expr& position)> element;  // i32; or bool or i8: not 0
  bool listed = true;
  Expr entries, limit;
};

// Writes the share of the selected blocks, in ascending order, to the front of `list` (shared i32;
// what it has no room for is dropped) and returns how many.
Expr list_blocks(const BlockRow& row, const Share& share, const Tile& list);

}  // namespace kiln
