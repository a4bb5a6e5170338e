// The choice of one row's blocks, by a block of threads: what select_blocks and xattn_estimate have
// in common.
#pragma once

#include <functional>

#include "dsl/dsl.h"
#include "kernels/select_blocks/select_blocks.h"

namespace kiln {

struct ScoreRow {
  std::function<Expr(const Expr& column)> score;  // f32, of any column that is there
  Expr visible;                                   // columns 0 … visible - 1 are seen
  Expr low_diagonal, diagonal;                    // its own columns, the later one last
  Expr amount;                                    // threshold f32, or k i32
  Expr is_first;                                  // row of its sequence; of ref_compat alone
  Expr in_first_chunk;                            // of rows without history; of ref_compat alone
};

// Where the choice goes. Columns are looked at in ascending order; those from `columns` on are
// not, and what is stored beyond a tensor's end is dropped.
struct ChosenRow {
  Expr columns;
  std::function<void(const Expr& column, const Expr& chosen)> store_mask;
  std::function<void(const Expr& place, const Expr& column)> store_index;  // empty: no list
  std::function<void(const Expr& count)> store_count;
};

void choose_blocks(const SelectConfig& config, const ScoreRow& row, const ChosenRow& out);
// The blocks that any of `members` rows has, or more than half of them: for Any and Majority.
void choose_by_votes(HeadReduce reduce, const Expr& members,
                     const std::function<Expr(const Expr& member, const Expr& column)>& has,
                     const ChosenRow& out);

}  // namespace kiln
