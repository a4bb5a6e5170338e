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

// A plane of the mask or lists for each head or kv head or, if heads are mixed, the sparse ones.
int64_t planes_of(const AttentionConfig& config, const char* what, const Memory& given,
                  const BatchSizes& sizes) {
  if (config.per_kv_head) return sizes.heads_kv;
  if (!config.head_types || given.shape.size() < 2) return sizes.heads;
  if (given.shape[1] > sizes.heads)
    throw UserError(fmt::format("{}: expected at most {} planes, one a sparse head, got {}", what,
                                sizes.heads, given.shape[1]));
  return given.shape[1];
}

void check_blocks(const AttentionConfig& config, const AttentionArgs& args,
                  const BatchSizes& sizes) {
  const BlockGrid grid{sizes.seq, sizes.seq_kv, config.block, config.causal};
  const bool masked = config.form == BlockForm::MaskBool || config.form == BlockForm::MaskI8;
  if (masked) {
    const Memory& mask = required("mask", args.mask);
    require_dtype("mask", mask, config.form == BlockForm::MaskBool ? Bool : I8);
    const int64_t planes = planes_of(config, "mask", mask, sizes);
    require_at_least("mask", mask, {sizes.batch, planes, grid.rows(), grid.cols()}, 2, kSurplus);
  } else {
    refuse("mask", args.mask, "without one");
  }
  if (config.form == BlockForm::Lists) {
    const Memory& counts = required("counts", args.counts);
    const Memory& indices = required("indices", args.indices);
    require_dtype("counts", counts, I32);
    require_dtype("indices", indices, I32);
    const int64_t planes = planes_of(config, "counts", counts, sizes);
    require_at_least("counts", counts, {sizes.batch, planes, grid.rows()}, 1, kSurplus);
    require_at_least("indices", indices, {sizes.batch, planes, grid.rows(), 0}, 2, kSurplus);
    if (counts.shape[2] != indices.shape[2])
      throw UserError(fmt::format("counts, indices: expected as many rows in both, got {} and {}",
                                  counts.shape[2], indices.shape[2]));
  } else {
    refuse("counts", args.counts, "without lists");
    refuse("indices", args.indices, "without lists");
  }
}

void check_heads(const AttentionConfig& config, const AttentionArgs& args, int64_t heads) {
  if (config.head_types) {
    const Memory& types = required("head_mask_type", args.head_mask_type);
    require_dtype("head_mask_type", types, I32);
    require_shape("head_mask_type", types, {heads});
  } else {
    refuse("head_mask_type", args.head_mask_type, "without head_types");
  }
  if (config.streaming == Streaming::None)
    return refuse("streaming_info", args.streaming_info, "without streaming");
  const Memory& info = required("streaming_info", args.streaming_info);
  require_dtype("streaming_info", info, I32);
  require_shape("streaming_info", info, {heads, 2});
}

}  // namespace

void check(const AttentionConfig& config, const AttentionArgs& args) {
  for (auto [what, tensor] : {std::pair("q", &args.q), std::pair("k", &args.k),
                              std::pair("v", &args.v), std::pair("o", &args.o)})
    require_dtype(what, *tensor, config.dtype);
  const BatchSizes sizes =
      check_sequences(config.sequences(), sequence_tensors(args), config.head_dim);
  check_attended(sizes, args.q, args.k, args.v, args.o, args.lse, config.lse, config.dim_v());
  check_blocks(config, args, sizes);
  check_heads(config, args, sizes.heads);
  float scale = scale_of(config, args);
  if (!(scale > 0) || !std::isfinite(scale))
    throw UserError(fmt::format("scale: expected a finite number above 0, got {}", scale),
                    "negate or clear q instead");
}

float scale_of(const AttentionConfig& config, const AttentionArgs& args) {
  return args.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))));
}

BatchSizes sizes_of(const AttentionConfig& config, const AttentionArgs& args) {
  return batch_sizes(config.sequences(), sequence_tensors(args));
}

BlockGrid grid_of(const AttentionConfig& config, const AttentionArgs& args) {
  const BatchSizes sizes = sizes_of(config, args);
  return {sizes.seq, sizes.seq_kv, config.block, config.causal};
}

CallScalars<1, 1> AttentionInterface::scalars(const Config& config, const Args& args) {
  const Scalar scale = Scalar::of_float(F32, scale_of(config, args));
  if (!config.varlen) return {{{scale}, 1}, {{}, 0}};
  return {{{scale}, 1}, {{*args.max_seqlen_q}, 1}};
}

std::array<const Memory*, 15> AttentionInterface::tensors(const AttentionArgs& args) {
  return {&args.q,
          &args.k,
          &args.v,
          &args.o,
          given(args.mask),
          given(args.counts),
          given(args.indices),
          given(args.lse),
          given(args.cu_seqlens_q),
          given(args.cu_seqlens_k),
          given(args.lengths),
          given(args.table),
          given(args.q_start),
          given(args.head_mask_type),
          given(args.streaming_info)};
}

kiln::Limits AttentionInterface::dims(const AttentionLimits& limits) {
  return {{"batch", limits.batch},       {"ends", limits.batch + 1}, {"heads", limits.heads},
          {"heads_kv", limits.heads_kv}, {"seq", limits.seq},        {"seq_kv", limits.seq_kv}};
}

BlockSparseAttention block_sparse_attention(Device& device, const AttentionConfig& config) {
  Device& chosen = device_for(device, config.target);
  return {chosen, validated(config, chosen.target())};
}

}  // namespace kiln
