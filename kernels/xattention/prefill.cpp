// The launches of xattn_estimate, then the one of block_sparse_attention on the lists that they
// made.
#include "kernels/xattention/prefill.h"

#include <fmt/format.h>

#include "kernels/block_sparse_attention/attend.h"
#include "kernels/xattention/estimate.h"

namespace kiln {

// What becomes of which sequence.
static std::string dispatch(const PrefillConfig& config) {
  if (config.dense_below == 0) return "every sequence is estimated (dense_below 0)";
  return fmt::format(
      "sequences with fewer than {} keys are dense, the others estimated (dense_below)",
      config.dense_below);
}

Kernel xattention_prefill_kernel(const PrefillConfig& config) {
  const PrefillConfig c = validated(config);
  const EstimateConfig estimated = validated(c.estimate());
  const AntidiagConfig cells = estimated.cells();
  const AttentionConfig attended = c.attention();
  return trace("xattention_prefill", {.fast_math = c.fast_math, .note = dispatch(c)}, [&] {
    const SequenceInterface sequences(attended.sequences(), true);
    const Expr rows = ceildiv(sequences.seq, c.block), cols = ceildiv(*sequences.seq_kv, c.block);
    const Expr scale = param("scale", F32), cell_scale = param("cell_scale", F32);
    const Tensor sums = workspace("sums", F32, {sequences.batch, sequences.heads, rows, cols});
    const auto kept = c.choice ? ChoiceInterface::Kept::Inouts : ChoiceInterface::Kept::Workspaces;
    const ChoiceInterface choice(estimated.select, sequences.batch, sequences.heads, rows, cols,
                                 kept, sequences.heads_kv);
    const AttentionTensors tensors(attended, sequences, {choice.counts(), choice.indices(), cols});
    const CellInterface interface(cells, sequences, tensors.q, tensors.k);
    estimate(estimated, interface, cell_scale, sums, choice);
    attend(tensors, scale);
  });
}

}  // namespace kiln
