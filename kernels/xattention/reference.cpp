#include <algorithm>

#include "kernels/access.h"
#include "kernels/softmax_block_sum/softmax_block_sum.h"
#include "kernels/xattention/prefill.h"
#include "kernels/xattention/xattention.h"

namespace kiln {
namespace {

int64_t floor_div(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && a < 0 ? 1 : 0);
}

// What block row `row` sees, and where it stands.
RowChoice place_of(const EstimateConfig& c, const CellReference& sequence, int64_t row) {
  const int64_t first = row * c.block;
  if (first >= sequence.queries()) return {};
  const int64_t last = std::min(first + c.block, sequence.queries()) - 1;
  const int64_t there = ceil_div(sequence.keys(), c.block);
  RowChoice place;
  place.low_diagonal = floor_div(sequence.start() + first, c.block);
  place.diagonal = floor_div(sequence.start() + last, c.block);
  place.visible = c.causal ? std::clamp<int64_t>(place.diagonal + 1, 0, there) : there;
  place.first_row = row == 0;
  place.takes_all = sequence.keys_given() < c.dense_below;
  place.first_chunk = sequence.start() == 0 && row > 0 && row < c.select.ref_chunk;
  return place;
}

}  // namespace

std::vector<double> estimate_sums(const EstimateConfig& config, const EstimateArgs& args) {
  const AntidiagConfig cells = config.cells();
  const Shape& shape = args.sums.shape;
  const int64_t block = config.block / config.stride;
  std::vector<double> sums(static_cast<size_t>(count(shape)));
  for (int64_t b = 0; b < shape[0]; ++b) {
    const CellReference sequence(cells, args, b);
    if (sequence.keys_given() < config.dense_below) continue;
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t row = 0; row < sequence.rows(); ++row) {
        const int64_t seen = config.causal
                                 ? std::clamp<int64_t>(sequence.cell(row) + 1, 0, sequence.cols())
                                 : sequence.cols();
        softmax_sums(
            seen, block, scale_of(config, args),
            [&](int64_t col) { return sequence.score(h, row, col); },
            sums.data() + ((b * shape[1] + h) * shape[2] + row / block) * shape[3]);
      }
  }
  return sums;
}

ChoiceResults estimate_choice(const EstimateConfig& config, const EstimateArgs& args,
                              const std::vector<double>& sums) {
  const AntidiagConfig cells = config.cells();
  return choose_rows(config.select, args, args.sums.shape, sums, [&](int64_t b, int64_t row) {
    return place_of(config, CellReference(cells, args, b), row);
  });
}

// What float64 estimates, chooses and attends. Where sums are too near to tell, it may choose
// another block than a device.
ReferenceResults prefill_reference(const PrefillConfig& config, const PrefillArgs& args) {
  const EstimateConfig estimated = validated(config.estimate());
  const AttentionConfig attended = validated(config.attention());
  const BatchSizes sizes = batch_sizes(attended.sequences(), sequence_tensors(args));
  const bool reduced = config.select.reduce != HeadReduce::None;
  const int64_t rows = ceil_div(sizes.seq, config.block);
  const int64_t cols = ceil_div(sizes.seq_kv, config.block);
  const int64_t heads = reduced ? sizes.heads_kv : sizes.heads;
  Array sums(F32, {sizes.batch, sizes.heads, rows, cols});
  Array mask(Bool, {sizes.batch, heads, rows, cols});
  EstimateArgs estimate_args = estimate_of(args);
  estimate_args.sums = sums.view();
  estimate_args.mask = mask.view();
  ChoiceResults choice =
      estimate_choice(estimated, estimate_args, estimate_sums(estimated, estimate_args));
  Array counts(I32, {sizes.batch, heads, rows}, choice.counts);
  Array indices(I32, {sizes.batch, heads, rows, cols}, choice.indices);
  AttentionArgs attention_args = attention_of(args);
  attention_args.counts = counts.view();
  attention_args.indices = indices.view();
  ReferenceResults results = attention_results(attended, attention_args);
  if (config.choice)
    for (auto& [name, values] : results_of(config.select, std::move(choice)))
      results[name] = std::move(values);
  return results;
}

}  // namespace kiln
