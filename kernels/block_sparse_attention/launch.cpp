// The callable: checks what the caller gave, then launches.
#include <fmt/format.h>

#include <cmath>

#include "ir/error.h"
#include "kernels/argument_checks.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"

namespace kiln {
namespace {

constexpr const char* kSurplus =
    "the last axes may be larger, their surplus is ignored; batch and heads are those of q";

void check_blocks(const AttentionConfig& config, const AttentionArgs& args) {
  BlockGrid grid = grid_of(config, args);
  int64_t batch = args.q.shape[0], heads = args.q.shape[1];
  bool masked = config.form == BlockForm::MaskBool || config.form == BlockForm::MaskI8;
  if (masked) {
    const Memory& mask = required("mask", args.mask);
    require_dtype("mask", mask, config.form == BlockForm::MaskBool ? Bool : I8);
    require_at_least("mask", mask, {batch, heads, grid.rows(), grid.cols()}, 2, kSurplus);
  } else {
    refuse("mask", args.mask, "without one");
  }
  if (config.form == BlockForm::Lists) {
    const Memory& counts = required("counts", args.counts);
    const Memory& indices = required("indices", args.indices);
    require_dtype("counts", counts, I32);
    require_dtype("indices", indices, I32);
    require_at_least("counts", counts, {batch, heads, grid.rows()}, 1, kSurplus);
    require_at_least("indices", indices, {batch, heads, grid.rows(), 0}, 2, kSurplus);
    if (counts.shape[2] != indices.shape[2])
      throw UserError(fmt::format("counts, indices: expected as many rows in both, got {} and {}",
                                  counts.shape[2], indices.shape[2]));
  } else {
    refuse("counts", args.counts, "without lists");
    refuse("indices", args.indices, "without lists");
  }
}

}  // namespace

void check(const AttentionConfig& config, const AttentionArgs& args) {
  require_rank("q", args.q, 4, "batch, heads, seq, dim");
  require_rank("k", args.k, 4, "batch, heads_kv, seq_kv, dim");
  for (auto [what, tensor] : {std::pair("q", &args.q), std::pair("k", &args.k),
                              std::pair("v", &args.v), std::pair("o", &args.o)})
    require_dtype(what, *tensor, config.dtype);
  int64_t batch = args.q.shape[0], heads = args.q.shape[1], seq = args.q.shape[2];
  int64_t heads_kv = args.k.shape[1], seq_kv = args.k.shape[2];
  require_shape("q", args.q, {batch, heads, seq, config.head_dim});
  require_shape("k", args.k, {batch, heads_kv, seq_kv, config.head_dim});
  require_shape("v", args.v, {batch, heads_kv, seq_kv, config.dim_v()});
  require_shape("o", args.o, {batch, heads, seq, config.dim_v()});
  if (heads_kv == 0 ? heads != 0 : heads % heads_kv != 0)
    throw UserError(fmt::format("heads: expected a multiple of the {} heads of k and v, got {}",
                                heads_kv, heads));
  if (config.lse) {
    require_dtype("lse", required("lse", args.lse), F32);
    require_shape("lse", *args.lse, {batch, heads, seq});
  } else {
    refuse("lse", args.lse, "without it");
  }
  check_blocks(config, args);
  float scale = scale_of(config, args);
  if (!(scale > 0) || !std::isfinite(scale))
    throw UserError(fmt::format("scale: expected a finite number above 0, got {}", scale),
                    "negate or clear q instead");
}

float scale_of(const AttentionConfig& config, const AttentionArgs& args) {
  return args.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))));
}

BlockGrid grid_of(const AttentionConfig& config, const AttentionArgs& args) {
  return {args.q.shape[2], args.k.shape[2], config.block, config.causal};
}

std::array<const Memory*, 8> AttentionInterface::tensors(const AttentionArgs& args) {
  return {&args.q,
          &args.k,
          &args.v,
          &args.o,
          given(args.mask),
          given(args.counts),
          given(args.indices),
          given(args.lse)};
}

kiln::Limits AttentionInterface::dims(const AttentionLimits& limits) {
  return {{"batch", limits.batch},
          {"heads", limits.heads},
          {"heads_kv", limits.heads_kv},
          {"seq", limits.seq},
          {"seq_kv", limits.seq_kv}};
}

BlockSparseAttention block_sparse_attention(Device& device, const AttentionConfig& config) {
  Device& chosen = device_for(device, config.target);
  return {chosen, validated(config, chosen.target())};
}

}  // namespace kiln
