// The callable of xattention_prefill: checks what the caller gave, then launches.
#include <fmt/format.h>

#include <cmath>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"
#include "kernels/xattention/prefill.h"

namespace kiln {
namespace {

float attention_scale(const PrefillConfig& config, const PrefillArgs& args) {
  return args.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))));
}

float cell_scale(const PrefillConfig& config, const PrefillArgs& args) {
  return static_cast<float>(1 / (std::sqrt(static_cast<double>(config.head_dim)) *
                                 static_cast<double>(config.stride) * args.norm));
}

void require_scale(const char* what, float given, float scale) {
  if (!(given > 0) || !std::isfinite(scale) || scale == 0)
    throw UserError(fmt::format("{}: expected a finite number above 0, got {}", what, given));
}

void check_chosen(const PrefillConfig& config, const PrefillArgs& args, const BatchSizes& sizes) {
  const HeadReduce reduce = config.select.reduce;
  const int64_t heads = reduce == HeadReduce::None ? sizes.heads : sizes.heads_kv;
  const int64_t rows = ceil_div(sizes.seq, config.block);
  const int64_t cols = ceil_div(sizes.seq_kv, config.block);
  if (present("mask", args.mask, config.choice)) {
    require_dtype("mask", *args.mask, Bool);
    require_shape("mask", *args.mask, {sizes.batch, heads, rows, cols});
  }
  if (present("counts", args.counts, config.choice)) {
    require_dtype("counts", *args.counts, I32);
    require_shape("counts", *args.counts, {sizes.batch, heads, rows});
  }
  if (present("indices", args.indices, config.choice)) {
    require_dtype("indices", *args.indices, I32);
    require_shape("indices", *args.indices, {sizes.batch, heads, rows, cols});
  }
  const bool votes = reduce == HeadReduce::Any || reduce == HeadReduce::Majority;
  check_amount(config.select, args.thresholds, args.threshold, args.top_k,
               votes ? sizes.heads : heads);
}

}  // namespace

EstimateConfig PrefillConfig::estimate() const {
  return {.dtype = dtype,
          .head_dim = head_dim,
          .stride = stride,
          .block = block,
          .causal = causal,
          .varlen = varlen,
          .lengths = lengths,
          .page = page,
          .q_start = q_start,
          .checked = checked,
          .chunk = chunk,
          .dense_below = dense_below,
          .select_mode = select_mode,
          .select = select};
}

AttentionConfig PrefillConfig::attention() const {
  AttentionConfig config{.dtype = dtype,
                         .head_dim = head_dim,
                         .head_dim_v = head_dim_v,
                         .block = block,
                         .causal = causal,
                         .form = BlockForm::Lists,
                         .lse = lse,
                         .fast_math = fast_math};
  config.varlen = varlen;  // what the lists and sequences are, the estimate's launch checks
  config.lengths = lengths;
  config.page = page;
  config.q_start = q_start;
  config.per_kv_head = select.reduce != HeadReduce::None;
  config.block_m = block_m;
  config.block_n = block_n;
  config.stages = stages;
  config.threads = threads;
  config.schedule = schedule;
  config.target = target;
  return config;
}

PrefillConfig validated(PrefillConfig config, std::string_view target) {
  if (config.block != 64 && config.block != 128)
    throw UserError(fmt::format("block: expected 64 or 128, got {}", config.block));
  if (!config.select.list)
    throw UserError("list: expected true, since the attention follows the lists");
  config.select = validated(config.estimate()).select;
  const AttentionConfig attention = validated(config.attention(), target);
  config.head_dim_v = attention.head_dim_v;
  config.lengths = attention.lengths;
  config.block_m = attention.block_m;
  config.block_n = attention.block_n;
  config.stages = attention.stages;
  config.threads = attention.threads;
  config.schedule = attention.schedule;
  return config;
}

void check(const PrefillConfig& config, const PrefillArgs& args) {
  for (auto [what, tensor] : {std::pair("q", &args.q), std::pair("k", &args.k),
                              std::pair("v", &args.v), std::pair("o", &args.o)})
    require_dtype(what, *tensor, config.dtype);
  const BatchSizes sizes =
      check_sequences(config.sequences(), sequence_tensors(args), config.head_dim);
  check_attended(sizes, args.q, args.k, args.v, args.o, args.lse, config.lse, config.dim_v());
  check_chosen(config, args, sizes);
  require_scale("norm", args.norm, cell_scale(config, args));
  require_scale("scale", attention_scale(config, args), attention_scale(config, args));
}

std::array<const Memory*, 14> PrefillInterface::tensors(const Args& args) {
  return {&args.q,
          &args.k,
          &args.v,
          &args.o,
          given(args.lse),
          given(args.thresholds),
          given(args.mask),
          given(args.counts),
          given(args.indices),
          given(args.cu_seqlens_q),
          given(args.cu_seqlens_k),
          given(args.lengths),
          given(args.table),
          given(args.q_start)};
}

CallScalars<3, 2> PrefillInterface::scalars(const Config& config, const Args& args) {
  CallScalars<3, 2> scalars{{{Scalar::of_float(F32, attention_scale(config, args)),
                              Scalar::of_float(F32, cell_scale(config, args))},
                             2},
                            {{}, 0}};
  if (const auto amount = amount_of(config.select, args.threshold, args.top_k))
    scalars.params.values[scalars.params.count++] = *amount;
  scalars.dims = longest_sequences(config.sequences(), sequence_tensors(args));
  return scalars;
}

Limits PrefillInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch},       {"ends", limits.batch + 1}, {"heads", limits.heads},
          {"heads_kv", limits.heads_kv}, {"seq", limits.seq},        {"seq_kv", limits.seq_kv}};
}

EstimateArgs estimate_of(const PrefillArgs& args) {
  EstimateArgs estimate;
  estimate.q = args.q;
  estimate.k = args.k;
  take_sequences(args, estimate);
  estimate.thresholds = args.thresholds;
  estimate.threshold = args.threshold;
  estimate.top_k = args.top_k;
  estimate.norm = args.norm;
  return estimate;
}

AttentionArgs attention_of(const PrefillArgs& args) {
  AttentionArgs attention{.q = args.q, .k = args.k, .v = args.v, .o = args.o};
  attention.lse = args.lse;
  attention.scale = args.scale;
  take_sequences(args, attention);
  return attention;
}

XattentionPrefill xattention_prefill(Device& device, const PrefillConfig& config) {
  Device& chosen = device_for(device, config.target);
  return {chosen, validated(config, chosen.target())};
}

}  // namespace kiln
