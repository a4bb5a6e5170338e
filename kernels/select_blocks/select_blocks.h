// Which blocks of keys each block of queries sees, chosen from block scores on the device: by a
// threshold of the row's mass or as many as asked for; a mask, and ascending lists with counts.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/library_function.h"
#include "kernels/registry.h"

namespace kiln {

// Threshold: the fewest best blocks whose scores, not negative, sum up to at least the threshold
// times the row's sum; a block that adds nothing is not one of them. TopK: the best k, never one of
// score -inf. Equal scores go by the lower block; NaN is -inf, in a sum 0.
enum class SelectBy : uint8_t { Threshold, TopK };
// Of the heads that share a kv head: a choice each; one choice from the mean of their scores; the
// blocks that any of them, or more than half of them, chose.
enum class HeadReduce : uint8_t { None, Mean, Any, Majority };

// What the choice of one row's blocks follows; for Threshold and rows that are causal it is the
// rule of XAttention.
struct SelectConfig {
  SelectBy by = SelectBy::Threshold;
  bool causal = true;     // a row sees the blocks up to its diagonal; else all
  bool per_head = false;  // thresholds (or ks) a head, in a tensor
  HeadReduce reduce = HeadReduce::None;
  // Forced blocks are chosen before all others, and count; of causal rows only. Kept ones are added
  // to the choice, whatever it is. The sink is block 0, the diagonal that of the row's own keys.
  bool force_sink = true, force_diag = true;
  bool keep_sink = false, keep_recent = false;
  bool list = true;  // counts and indices too
  // As the public code chooses: with one forced block a block more than needed, column 0 always,
  // and with keep_sink all of row 0. `ref_chunk`: rows that it looks at together; 0: all.
  bool ref_compat = false;
  int64_t ref_chunk = 0;
  bool operator==(const SelectConfig&) const = default;
};
// UserError naming the field, its legal values and what it is; returns it.
SelectConfig validated(const SelectConfig& config);

// scores f32 [batch, heads, rows, cols]; first i32 [batch], the column of row 0's diagonal; blocks
// i32 [batch], the columns that are there; threshold f32 (or top_k i32), a param, or per_head a
// tensor thresholds f32 (ks i32) [out_heads]. Outputs: mask bool [batch, out_heads, rows, cols]; if
// listed, counts i32 [batch, out_heads, rows] and indices i32 [batch, out_heads, rows, cols],
// ascending, -1 behind. out_heads: heads, or if they are reduced kv heads, of which heads is a
// multiple.
Kernel select_blocks_kernel(const SelectConfig& config);

// What a choice gives and how much it takes. Tensors in the device's memory, any strides with a
// contiguous last axis.
struct ChoiceArgs {
  Memory mask;
  std::optional<Memory> counts, indices;
  std::optional<Memory> thresholds;  // f32 or, of TopK, i32 [out_heads]; values are not looked at
  std::optional<float> threshold;    // in (0, 1], 0.9 if not given; of Threshold unless per head
  std::optional<int64_t> top_k;      // not below what is forced; of TopK unless per head
};
struct SelectArgs : ChoiceArgs {
  Memory scores, first, blocks;
};
inline constexpr float kDefaultThreshold = 0.9f;
// UserError naming the argument, what was expected and what came.
void check(const SelectConfig& config, const SelectArgs& args);
// The same for a choice from scores [batch, heads, rows, cols], called `what`.
void check_choice(const SelectConfig& config, const char* what, const Memory& scores,
                  const ChoiceArgs& args);
// The same of how much it takes, of arguments with the fields `thresholds`, `threshold` and
// `top_k`, for so many heads.
void check_amount(const SelectConfig& config, const std::optional<Memory>& thresholds,
                  const std::optional<float>& threshold, const std::optional<int64_t>& top_k,
                  int64_t heads);
// Its param, if it has one.
std::optional<Scalar> amount_of(const SelectConfig& config, const std::optional<float>& threshold,
                                const std::optional<int64_t>& top_k);

struct SelectLimits {
  int64_t batch = 0, heads = 0, rows = 0, cols = 0;
};
struct SelectInterface {
  using Config = SelectConfig;
  using Args = SelectArgs;
  using Limits = SelectLimits;
  static constexpr std::array<std::string_view, 7> kTensors = {
      "scores", "first", "blocks", "thresholds", "mask", "counts", "indices"};
  static Kernel kernel(const Config& config) { return select_blocks_kernel(config); }
  static std::array<const Memory*, 7> tensors(const Args& args);
  static CallScalars<1> scalars(const Config& config, const Args& args);
  static void check(const Config& config, const Args& args) { kiln::check(config, args); }
  static kiln::Limits dims(const Limits& limits);
};
using SelectBlocks = LibraryFunction<SelectInterface>;
SelectBlocks select_blocks(Device& device, const SelectConfig& config);

// The choice of one row in float64, plain loops: which of its columns are in the mask.
struct RowChoice {
  int64_t visible = 0;                          // columns 0 … visible - 1 are seen
  int64_t low_diagonal = 0, diagonal = 0;       // its own columns
  double amount = 0;                            // threshold, or k
  bool first_row = false, first_chunk = false;  // of the sequence; of ref_compat alone
  bool takes_all = false;                       // whatever the scores are
};
std::vector<bool> choose_row(const SelectConfig& config, const std::vector<double>& scores,
                             const RowChoice& row);
// Of all rows of `shape`, that of the scores; heads reduced as config says, in order of the
// outputs.
struct ChoiceResults {
  std::vector<double> mask, counts, indices;
};
ChoiceResults choose_rows(const SelectConfig& config, const ChoiceArgs& args, const Shape& shape,
                          const std::vector<double>& scores,
                          const std::function<RowChoice(int64_t b, int64_t row)>& place_of);

// The options that make a SelectConfig but for causal and ref_chunk, and their reading; of a call
// by name, the arguments and the param's default.
std::vector<OptionInfo> select_options();
SelectConfig select_config(const Options& options);
ChoiceArgs choice_args(const SelectConfig& config, const Bindings& bindings);
std::map<std::string, Scalar> default_amount(const SelectConfig& config);
ReferenceResults results_of(const SelectConfig& config, ChoiceResults results);

KernelEntry select_blocks_entry();

}  // namespace kiln
