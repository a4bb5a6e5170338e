// Queries and keys whose attention looks like a language model's.
#pragma once

#include <cstdint>

#include "runtime/array.h"

namespace kiln::cli {

// Fills q [batch, heads, seq, dim] and k [batch, heads_kv, seq_kv, dim]; the queries are the last
// of the sequence. Of a head, both are one vector with noise, turned by their position (RoPE, base
// 5e5): the mean logit falls like the logarithm of the distance, in some heads steeper than in
// others. Keys of a sink of 4 tokens, and of stripes of 32 tokens, 1 to 4 in 4096 by the head, are
// raised for all queries; a quarter of the heads also look a fixed distance back. Densities
// measured on it are properties of this data.
void fill_model_like(Array& q, Array& k, uint64_t seed);

}  // namespace kiln::cli
