// The choice of one row's blocks, by a block of threads: what select_blocks and xattn_estimate have
// in common.
#pragma once

#include <functional>
#include <optional>

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
  std::function<void(const Expr& column, const Expr& chosen)> store_mask;  // empty: no mask
  std::function<void(const Expr& place, const Expr& column)> store_index;  // empty: no list
  std::function<void(const Expr& count)> store_count;
};

void choose_blocks(const SelectConfig& config, const ScoreRow& row, const ChosenRow& out);
// The blocks that any of `members` rows has, or more than half of them: for Any and Majority.
void choose_by_votes(HeadReduce reduce, const Expr& members,
                     const std::function<Expr(const Expr& member, const Expr& column)>& has,
                     const ChosenRow& out);

// The choice as part of a kernel: what it takes and gives, and its launches. A block of threads
// chooses one row's blocks; means of heads' scores are taken by a launch before, votes of heads
// counted by one after.
class ChoiceInterface {
 public:
  // Where the choice is kept: in tensors that the caller gets, which later launches may read too,
  // or, lists alone, in workspaces.
  enum class Kept : uint8_t { Outputs, Inouts, Workspaces };
  // After the kernel's own tensors: mask, counts, indices, and what says how much is chosen. Of
  // heads that are reduced: `out_heads`, or a dim of that name.
  ChoiceInterface(const SelectConfig& config, const Expr& batch, const Expr& heads,
                  const Expr& rows, const Expr& cols, Kept kept = Kept::Outputs,
                  const std::optional<Expr>& out_heads = {});

  // What a row sees and where its diagonal is.
  struct Place {
    Expr visible, low_diagonal, diagonal, is_first, in_first_chunk;
    std::optional<Expr> takes_all = {};  // whatever the scores are
  };
  using PlaceOf = std::function<Place(const Expr& b, const Expr& row)>;
  // From scores f32 [batch, heads, rows, cols].
  void launches(const Tensor& scores, const PlaceOf& place) const;
  const Tensor& counts() const { return *counts_; }
  const Tensor& indices() const { return *indices_; }

 private:
  Expr group() const { return heads_ / out_heads_; }
  ChosenRow stored_in(const Tensor& mask, const Expr& b, const Expr& h, const Expr& row) const;
  ChosenRow result(const Expr& b, const Expr& h, const Expr& row) const;
  Expr everything() const;
  void take_means(const Tensor& scores) const;
  void choose(const Tensor& scores, const PlaceOf& place) const;
  void count_votes() const;

  const SelectConfig& c_;
  bool means_, votes_;
  Expr batch_, heads_;
  Expr out_heads_, rows_, cols_;
  std::optional<Expr> amount_;
  std::optional<Tensor> per_head_, mask_, counts_, indices_, mean_scores_, ballots_;
};

}  // namespace kiln
