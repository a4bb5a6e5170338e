// The launch that attends, as part of a kernel: what block_sparse_attention and xattention_prefill
// have in common.
#pragma once

#include <optional>

#include "dsl/dsl.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/block_sparse_attention/visible.h"
#include "kernels/sequence_tiles.h"

namespace kiln {

struct AttentionTensors {
  const AttentionConfig& c;
  const SequenceInterface& sequences;
  // Known before the first launch: tiles of queries, query heads that share a key head.
  Expr tiles, group;
  Tensor q, k, v, o;
  std::optional<Tensor> lse, mask, counts, indices;
  std::optional<HeadTypes> types;
  std::optional<Expr> planes;   // of sparse heads
  std::optional<Expr> entries;  // of a list

  // Declares q, k, v, o and what the configuration asks for. Lists may be another launch's.
  AttentionTensors(const AttentionConfig& config, const SequenceInterface& sequences);
  struct Lists {
    Tensor counts, indices;
    Expr entries;
  };
  AttentionTensors(const AttentionConfig& config, const SequenceInterface& sequences,
                   const Lists& lists);
  AttentionTensors(const AttentionTensors&) = delete;

 private:
  AttentionTensors(const AttentionConfig& config, const SequenceInterface& sequences,
                   const Lists* lists);
};

void attend(const AttentionTensors& t, const Expr& scale);

}  // namespace kiln
