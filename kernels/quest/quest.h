// Which blocks of a long cache a new token reads, after Quest (arXiv 2406.10774) and ReSA: each
// block's keys are known by their elementwise minimum and maximum, by which no key of it can score
// more than the block's score. Kernels for both steps; the choice itself, on the host.
#pragma once

#include <cstdint>

#include "ir/kernel.h"
#include "kernels/registry.h"
#include "runtime/array.h"

namespace kiln {

struct QuestConfig {
  DType dtype = F16;       // of q, the keys, their minima and maxima: f16, bf16 or f32
  int64_t head_dim = 128;  // 1 to 512
  int64_t block = 16;      // keys of a block, 1 to 256
  int64_t local = 1;  // blocks at the end that are chosen whatever they hold; of the scores alone
};
// UserError naming the field, its legal values and what it is; returns it.
QuestConfig validated(const QuestConfig& config);

// k [batch, room, heads_kv, dim] and lengths i32 [batch] (keys that are there) give kmin and kmax
// [batch, ceil(room / block), heads_kv, dim]: of each block's keys, 0 where it has none. What lies
// behind a length is not used.
Kernel minmax_pool_kernel(const QuestConfig& config);

// q [batch, heads, dim], kmin and kmax [batch, blocks, heads_kv, dim], lengths i32 [batch], param
// scale f32 give scores f32 [batch, heads_kv, blocks]: the sum over d of max(q̄[d]·kmin[d],
// q̄[d]·kmax[d]), q̄ = scale · the mean of the kv head's queries; +∞ for the last `local` blocks
// that have keys, −∞ for those that have none.
Kernel quest_score_kernel(const QuestConfig& config);

// How many blocks of a sequence are kept: ceil(length · (1 − sparse_ratio) / block), at least
// `least` and one, but not more than there are. UserError unless 0 <= sparse_ratio <= 1.
int64_t kept_blocks(int64_t length, int64_t block, double sparse_ratio, int64_t least = 1);

// From scores [batch, heads_kv, blocks] of any float dtype and lengths i32 [batch]: the numbers of
// the last block that has keys and of the others with the highest scores, as many as kept_blocks
// says; of equal ones the lower number, NaN last. I32 [batch, heads_kv, most], ascending, −1
// behind.
Array select_blocks(const Memory& scores, const Memory& lengths, int64_t block, double sparse_ratio,
                    int64_t least = 1);

KernelEntry minmax_pool_entry();
KernelEntry quest_score_entry();

}  // namespace kiln
