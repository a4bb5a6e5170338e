// The launches of an estimate, as part of a kernel: what xattn_estimate and xattention_prefill have
// in common.
#pragma once

#include "kernels/antidiag_scores/cells.h"
#include "kernels/select_blocks/choice.h"
#include "kernels/xattention/xattention.h"

namespace kiln {

// Writes sums f32 [batch, heads, ceil(seq / block), ceil(seq_kv / block)], and chooses from them.
void estimate(const EstimateConfig& config, const CellInterface& cells, const Expr& scale,
              const Tensor& sums, const ChoiceInterface& choice);

}  // namespace kiln
