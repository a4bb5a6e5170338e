#include <fmt/format.h>

#include <cmath>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/antidiag_scores/cells.h"
#include "kernels/argument_checks.h"
#include "kernels/xattention/xattention.h"

namespace kiln {
namespace {

constexpr std::string_view kModes[] = {"inverse", "slash", "random", "double", "triple"};

EstimateConfig config_of(const Options& options) {
  const AntidiagConfig cells = cell_config(options);
  EstimateConfig config;
  config.dtype = cells.dtype;
  config.head_dim = cells.head_dim;
  config.stride = cells.stride;
  config.causal = cells.causal;
  config.varlen = cells.varlen;
  config.lengths = cells.lengths;
  config.page = cells.page;
  config.q_start = cells.q_start;
  config.checked = cells.checked;
  config.block = options.integer("block");
  config.chunk = options.integer("chunk");
  config.dense_below = options.integer("dense_below");
  config.select_mode = static_cast<SelectMode>(options.choice("select_mode", kModes));
  config.select = select_config(options);
  config.threads = options.integer("threads");
  return validated(config);
}

EstimateArgs args_of(const EstimateConfig& config, const Bindings& bindings) {
  EstimateArgs args{cell_args(config.cells(), bindings), choice_args(config.select, bindings),
                    bindings.tensors.at("sums")};
  args.norm = static_cast<float>(scale_of(config, args) / bindings.params.at("scale").f);
  return args;
}

}  // namespace

AntidiagConfig EstimateConfig::cells() const {
  return {.dtype = dtype,
          .out = F32,
          .head_dim = head_dim,
          .stride = stride,
          .causal = causal,
          .varlen = varlen,
          .lengths = lengths,
          .page = page,
          .q_start = q_start,
          .checked = checked};
}

EstimateConfig validated(EstimateConfig config) {
  if (config.block != 64 && config.block != 128 && config.block != 256)
    throw UserError(fmt::format("block: expected 64, 128 or 256, got {}", config.block));
  if (config.stride < 1 || config.block % config.stride != 0)
    throw UserError(fmt::format("stride: expected 4, 8 or 16, which divide block {}, got {}",
                                config.block, config.stride));
  config.lengths = validated(config.cells()).lengths;
  if (config.chunk < 2048 || config.chunk > 131072)
    throw UserError(fmt::format("chunk: expected 2048 to 131072, got {}", config.chunk));
  if (config.dense_below < 0)
    throw UserError(fmt::format("dense_below: expected 0 or more, got {}", config.dense_below));
  if (config.select_mode != SelectMode::Inverse)
    throw UserError(fmt::format("select_mode: expected inverse, got {}",
                                kModes[static_cast<size_t>(config.select_mode)]));
  if (config.threads < 0 || config.threads > 1024 || config.threads % 32 != 0)
    throw UserError(
        fmt::format("threads: expected 0 to 1024, a multiple of 32, got {}", config.threads));
  if (config.threads == 0) config.threads = kCellThreads;
  config.select.causal = config.causal;
  // Its chunks are whole blocks.
  config.select.ref_chunk = config.select.ref_compat ? ceil_div(config.chunk, config.block) : 0;
  config.select = validated(config.select);
  return config;
}

float scale_of(const EstimateConfig& config, const EstimateArgs& args) {
  return static_cast<float>(1 / (std::sqrt(static_cast<double>(config.head_dim)) *
                                 static_cast<double>(config.stride) * args.norm));
}

void check(const EstimateConfig& config, const EstimateArgs& args) {
  const AntidiagConfig cells = config.cells();
  check(cells, static_cast<const CellArgs&>(args));
  const BatchSizes sizes = sizes_of(cells, args);
  require_dtype("sums", args.sums, F32);
  require_shape("sums", args.sums,
                {sizes.batch, sizes.heads, ceil_div(sizes.seq, config.block),
                 ceil_div(sizes.seq_kv, config.block)});
  if (!(args.norm > 0) || !std::isfinite(scale_of(config, args)) || scale_of(config, args) == 0)
    throw UserError(fmt::format("norm: expected a finite number above 0, got {}", args.norm));
  check_choice(config.select, "sums", args.sums, args);
}

std::array<const Memory*, 12> EstimateInterface::tensors(const Args& args) {
  return {&args.q,
          &args.k,
          given(args.cu_seqlens_q),
          given(args.cu_seqlens_k),
          given(args.q_start),
          given(args.lengths),
          given(args.table),
          &args.sums,
          given(args.thresholds),
          &args.mask,
          given(args.counts),
          given(args.indices)};
}

CallScalars<2, 2> EstimateInterface::scalars(const Config& config, const Args& args) {
  CallScalars<2, 2> scalars{{{Scalar::of_float(F32, scale_of(config, args))}, 1}, {{}, 0}};
  if (const auto amount = amount_of(config.select, args.threshold, args.top_k)) {
    scalars.params.values[1] = *amount;
    scalars.params.count = 2;
  }
  scalars.dims = longest_sequences(config.cells().sequences(), sequence_tensors(args));
  return scalars;
}

Limits EstimateInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch},     {"ends", limits.batch + 1}, {"heads", limits.heads},
          {"out_heads", limits.heads}, {"seq", limits.seq},        {"seq_kv", limits.seq_kv}};
}

XattnEstimate xattn_estimate(Device& device, const EstimateConfig& config) {
  return {device, validated(config)};
}

KernelEntry xattn_estimate_entry() {
  KernelEntry entry;
  entry.name = "xattn_estimate";
  entry.summary = "the blocks that anti-diagonal scores choose, after XAttention";
  entry.options = cell_options();
  entry.options.push_back({"block", "128", "64, 128 or 256", "tokens of a block"});
  entry.options.push_back({"chunk", "16384", "2048 to 131072",
                           "queries that the public code looks at together; of ref_compat alone"});
  entry.options.push_back(
      {"dense_below", "0", "0 or more keys", "shorter sequences are not estimated: all is chosen"});
  entry.options.push_back(
      {"select_mode", "inverse", "inverse", "how queries are paired with keys in a cell"});
  for (OptionInfo& option : select_options()) entry.options.push_back(std::move(option));
  entry.options.push_back({"threads", "0", "0 to 1024, a multiple of 32; 0: chosen",
                           "threads of a block that sums, on a GPU"});
  entry.shipped = {{},
                   {{"dtype", "bf16"}},  // stride 16 keeps 88 bytes a thread in memory on sm_80
                   {{"stride", "4"}},
                   {{"head_dim", "64"}},
                   {{"varlen", "true"}, {"q_start", "true"}}};
  entry.build = [](const Options& options, std::string_view) {
    return xattn_estimate_kernel(config_of(options));
  };
  entry.default_params = [](const Options& options) {
    const EstimateConfig config = config_of(options);
    std::map<std::string, Scalar> params = default_amount(config.select);
    params["scale"] = Scalar::of_float(F32, scale_of(config, {}));
    return params;
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const EstimateConfig config = config_of(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const EstimateConfig config = config_of(options);
    const EstimateArgs args = args_of(config, bindings);
    std::vector<double> sums = estimate_sums(config, args);
    ReferenceResults results = results_of(config.select, estimate_choice(config, args, sums));
    results["sums"] = std::move(sums);
    return results;
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const EstimateConfig config = config_of(options);
    const EstimateArgs args = args_of(config, bindings);
    const BatchSizes sizes = sizes_of(config.cells(), args);
    // Every score twice; half of them if causal.
    const double pairs = static_cast<double>(sizes.batch * sizes.heads) *
                         static_cast<double>(sizes.seq) * static_cast<double>(sizes.seq_kv);
    const double per_stride = static_cast<double>(config.head_dim) / config.stride;
    return Work{2 * 2 * pairs * per_stride * (config.causal ? 0.5 : 1),
                bytes_of(args.q) + bytes_of(args.k) + bytes_of(args.sums) + bytes_of(args.mask)};
  };
  return entry;
}

}  // namespace kiln
