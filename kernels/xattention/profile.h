// Thresholds a head, found from texts: the published XAttention tables are made like this
// (sparse-attention spec §1.6: its dynamic programming is not released, its profiling script is).
// On host memory, in float64.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/masks.h"
#include "runtime/array.h"

namespace kiln {

// What full attention gives each block: per row of blocks the sum of the probabilities of its
// queries there. f64 [batch, heads, rows, cols] of q [batch, heads, seq, dim] and k [batch,
// heads_kv, seq_kv, dim].
Array full_block_sums(const Memory& q, const Memory& k, const BlockGrid& grid, double scale);

// One text: the block sums of full attention, and those of xattn_estimate, both [batch, heads,
// rows, cols] of any float dtype.
struct ProfiledText {
  const Array& full;
  const Array& estimated;
};
// The threshold of each head, [heads], in (0, 1]. In each row the smallest set of blocks with
// `mass` of the full attention is looked for, and what of the estimate is not below that set's
// least; the threshold is the share of that in all the estimate of a text, the largest over texts.
// It is a mean over rows: one that differs from the others may get less of the full attention. Of
// equal sums the lower block comes first; a row without sums counts nothing.
std::vector<double> profile_thresholds(std::span<const ProfiledText> texts, double mass = 0.9);

}  // namespace kiln
