// Checks, the call by name, and plain float64 of compressed_scores.
#include <cmath>

#include "kernels/infllmv2/compressed_scores.h"
#include "kernels/infllmv2/packed.h"

namespace kiln {
namespace {

float scale_of(const CompressedConfig& config, const CompressedArgs& args) {
  return args.scale.value_or(
      static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))));
}

using infllmv2::require;

void require_i32(const char* what, const Memory& tensor, int64_t entries) {
  require_dtype(what, tensor, I32);
  require_shape(what, tensor, {entries});
}

// How many of `there` windows a query at `position` sees.
int64_t seen(int64_t position, int64_t window, int64_t stride, bool causal, int64_t there) {
  if (!causal) return there;
  const int64_t behind = position - (window - 1);
  return std::clamp<int64_t>(behind < 0 ? 0 : behind / stride + 1, 0, there);
}

CompressedConfig config_of(const Options& options) {
  CompressedConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16});
  config.head_dim = options.integer("head_dim");
  config.group = options.integer("group");
  config.window = options.integer("window");
  config.stride = options.integer("stride");
  config.causal = options.boolean("causal");
  config.coarse = options.boolean("coarse");
  config.coarse_window = options.integer("coarse_window");
  config.coarse_stride = options.integer("coarse_stride");
  return validated(config);
}

CompressedArgs args_of(const CompressedConfig& config, const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  CompressedArgs args{tensors.at("q"),          tensors.at("keys"),       tensors.at("cu_seqlens"),
                      tensors.at("cu_windows"), tensors.at("cache_lens"), tensors.at("scores")};
  if (config.coarse) {
    args.coarse_keys = tensors.at("coarse_keys");
    args.cu_coarse = tensors.at("cu_coarse");
  }
  args.max_seqlen = bindings.dims.at("seq");
  args.scale = static_cast<float>(bindings.params.at("scale").f);
  return args;
}

}  // namespace

CompressedConfig validated(const CompressedConfig& config) {
  if (config.dtype != F16 && config.dtype != BF16)
    throw UserError(fmt::format("dtype: expected f16 or bf16, got {}", name(config.dtype)));
  if (config.head_dim < 16 || config.head_dim > 256 || config.head_dim % 16)
    throw UserError(
        fmt::format("head_dim: expected a multiple of 16 from 16 to 256, got {}", config.head_dim));
  require("group", config.group, 1, 64);
  require("window", config.window, 1, 1 << 20);
  require("stride", config.stride, 1, config.window);
  require("coarse_window", config.coarse_window, 1, 1 << 20);
  require("coarse_stride", config.coarse_stride, 1, config.coarse_window);
  return config;
}

void check(const CompressedConfig& config, const CompressedArgs& args) {
  for (auto [what, tensor] : {std::pair("q", &args.q), std::pair("keys", &args.keys)}) {
    require_dtype(what, *tensor, config.dtype);
    require_rank(what, *tensor, 3, "tokens or windows, heads, head_dim");
  }
  const int64_t tokens = args.q.shape[0], heads = args.keys.shape[1];
  require_shape("q", args.q, {tokens, heads * config.group, config.head_dim});
  require_shape("keys", args.keys, {args.keys.shape[0], heads, config.head_dim});
  require_dtype("cu_seqlens", args.cu_seqlens, I32);
  require_rank("cu_seqlens", args.cu_seqlens, 1, "batch + 1");
  const int64_t ends = args.cu_seqlens.shape[0];
  if (ends < 1) throw UserError("cu_seqlens: expected 1 entry or more, got none");
  require_i32("cu_windows", args.cu_windows, ends);
  require_i32("cache_lens", args.cache_lens, ends - 1);
  if (config.coarse) {
    const Memory& keys = required("coarse_keys", args.coarse_keys);
    require_dtype("coarse_keys", keys, config.dtype);
    require_rank("coarse_keys", keys, 3, "windows, heads, head_dim");
    require_shape("coarse_keys", keys, {keys.shape[0], heads, config.head_dim});
    require_i32("cu_coarse", required("cu_coarse", args.cu_coarse), ends);
  } else {
    refuse("coarse_keys", args.coarse_keys, "without coarse");
    refuse("cu_coarse", args.cu_coarse, "without coarse");
  }
  require_dtype("scores", args.scores, F32);
  require_rank("scores", args.scores, 3, "heads_kv, tokens, windows");
  require_shape("scores", args.scores, {heads, tokens, args.scores.shape[2]});
  if (args.max_seqlen < 0)
    throw UserError(
        fmt::format("max_seqlen: expected the longest sequence's tokens, got {}", args.max_seqlen));
  const float scale = scale_of(config, args);
  if (!(scale > 0) || !std::isfinite(scale))
    throw UserError(fmt::format("scale: expected a finite number above 0, got {}", scale));
}

std::array<const Memory*, 8> CompressedInterface::tensors(const Args& args) {
  return {&args.q,          &args.keys,   &args.cu_seqlens,        &args.cu_windows,
          &args.cache_lens, &args.scores, given(args.coarse_keys), given(args.cu_coarse)};
}

CallScalars<1, 1> CompressedInterface::scalars(const Config& config, const Args& args) {
  return {{{Scalar::of_float(F32, scale_of(config, args))}}, {{args.max_seqlen}}};
}

CompressedScores compressed_scores(Device& device, const CompressedConfig& config) {
  return {device, validated(config)};
}

std::vector<double> compressed_reference(const CompressedConfig& c, const CompressedArgs& args) {
  const Shape& shape = args.scores.shape;
  const double scale = scale_of(c, args);
  std::vector<double> scores(static_cast<size_t>(count(shape)));
  const Memory& summed = c.coarse ? *args.coarse_keys : args.keys;
  const Memory& summed_ends = c.coarse ? *args.cu_coarse : args.cu_windows;
  for (int64_t b = 0; b + 1 < args.cu_seqlens.shape[0]; ++b) {
    const int64_t begin = load_int(args.cu_seqlens, {b}), first = load_int(args.cu_windows, {b});
    const int64_t queries =
        std::clamp<int64_t>(load_int(args.cu_seqlens, {b + 1}) - begin, 0, args.max_seqlen);
    const int64_t there = std::max<int64_t>(load_int(args.cu_windows, {b + 1}) - first, 0);
    const int64_t first_summed = load_int(summed_ends, {b});
    const int64_t there_summed =
        std::max<int64_t>(load_int(summed_ends, {b + 1}) - first_summed, 0);
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t head = 0; head < shape[0] * c.group; ++head) {
        const int64_t position = i + load_int(args.cache_lens, {b}), kv_head = head / c.group;
        const auto dot = [&](const Memory& keys, int64_t window) {
          double sum = 0;
          for (int64_t d = 0; d < c.head_dim; ++d)
            sum +=
                load_double(args.q, {begin + i, head, d}) * load_double(keys, {window, kv_head, d});
          return scale * sum;
        };
        const int64_t of_sum = seen(position, c.coarse ? c.coarse_window : c.window,
                                    c.coarse ? c.coarse_stride : c.stride, c.causal, there_summed);
        double top = -std::numeric_limits<double>::infinity(), total = 0;
        std::vector<double> logits;
        for (int64_t m = 0; m < of_sum; ++m) logits.push_back(dot(summed, first_summed + m));
        for (double logit : logits) top = std::max(top, logit);
        for (double logit : logits) total += std::exp(logit - top);
        if (of_sum == 0) continue;
        const int64_t visible =
            std::min(seen(position, c.window, c.stride, c.causal, there), shape[2]);
        for (int64_t m = 0; m < visible; ++m)
          scores[static_cast<size_t>((kv_head * shape[1] + begin + i) * shape[2] + m)] +=
              std::exp(dot(args.keys, first + m) - top) / total;
      }
  }
  return scores;
}

KernelEntry compressed_scores_entry() {
  KernelEntry entry;
  entry.name = "compressed_scores";
  entry.summary = "attention of queries to windows of keys, summed over a kv head's heads";
  entry.options = {
      {"dtype", "f16", "f16 or bf16", "element type of q and the compressed keys"},
      {"head_dim", "128", "16 to 256, a multiple of 16", "head dimension"},
      {"group", "16", "1 to 64", "query heads of a kv head"},
      {"window", "32", "1 or more", "tokens of a window"},
      {"stride", "16", "1 to the window", "tokens from window to window"},
      {"causal", "true", "true or false", "a query sees windows that end at it or before"},
      {"coarse", "false", "true or false", "the softmax's sum is over coarser windows"},
      {"coarse_window", "128", "1 or more", "tokens of a coarse window"},
      {"coarse_stride", "64", "1 to the coarse window", "tokens from one to the next"}};
  entry.shipped = {{}, {{"coarse", "true"}}, {{"dtype", "bf16"}}};
  entry.build = [](const Options& options, std::string_view) {
    return compressed_scores_kernel(config_of(options));
  };
  entry.default_params = [](const Options& options) {
    const double scale = 1 / std::sqrt(static_cast<double>(config_of(options).head_dim));
    return std::map<std::string, Scalar>{{"scale", Scalar::of_float(F32, scale)}};
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const CompressedConfig config = config_of(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const CompressedConfig config = config_of(options);
    return ReferenceResults{{"scores", compressed_reference(config, args_of(config, bindings))}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const CompressedConfig config = config_of(options);
    const CompressedArgs args = args_of(config, bindings);
    const Shape& shape = args.scores.shape;
    // Two products a score and head, half of them seen if causal.
    const double pairs = static_cast<double>(shape[1] * shape[2]) *
                         static_cast<double>(shape[0] * config.group) * (config.causal ? 0.5 : 1);
    return Work{4 * pairs * static_cast<double>(config.head_dim),
                4.0 * static_cast<double>(count(shape))};
  };
  return entry;
}

}  // namespace kiln
