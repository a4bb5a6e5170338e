// Checks, calls by name, and plain float64.
#include <limits>

#include "kernels/infllmv2/packed.h"
#include "kernels/infllmv2/pooling.h"

namespace kiln {
namespace {

using namespace infllmv2;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

MeanPoolConfig mean_config(const Options& options) {
  MeanPoolConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16, F32});
  config.head_dim = options.integer("head_dim");
  config.window = options.integer("window");
  config.stride = options.integer("stride");
  return validated(config);
}
MeanPoolArgs mean_args(const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  return {tensors.at("x"), tensors.at("cu_seqlens"), tensors.at("pooled"), tensors.at("cu_windows"),
          bindings.dims.at("seq")};
}

MaxPoolConfig max_config(const Options& options) {
  MaxPoolConfig config;
  config.block = options.integer("block");
  config.stride = options.integer("stride");
  config.init = options.integer("init");
  config.local = options.integer("local");
  config.local_inclusive = options.boolean("local_inclusive");
  return validated(config);
}
MaxPoolArgs max_args(const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  return {tensors.at("scores"),     tensors.at("cu_seqlens"), tensors.at("cu_windows"),
          tensors.at("cache_lens"), tensors.at("pooled"),     bindings.dims.at("seq")};
}

}  // namespace

MeanPoolConfig validated(const MeanPoolConfig& config) {
  if (config.dtype != F16 && config.dtype != BF16 && config.dtype != F32)
    throw UserError(fmt::format("dtype: expected f16, bf16 or f32, got {}", name(config.dtype)));
  require("head_dim", config.head_dim, 1, 512);
  require("window", config.window, 1, 1 << 20);
  require("stride", config.stride, 1, config.window);
  return config;
}

MaxPoolConfig validated(const MaxPoolConfig& config) {
  require("block", config.block, 1, 1 << 20);
  require("stride", config.stride, 1, config.block);
  if (config.block % config.stride)
    throw UserError(fmt::format("stride: expected a divisor of the block's {} tokens, got {}",
                                config.block, config.stride));
  require("init", config.init, 0, 1 << 20);
  require("local", config.local, 0, 1 << 20);
  return config;
}

int64_t windows_of(const MeanPoolConfig& config, int64_t tokens) {
  return tokens < config.window ? 0 : (tokens - config.window) / config.stride + 1;
}

void check(const MeanPoolConfig& config, const MeanPoolArgs& args) {
  for (auto [what, tensor] : {std::pair("x", &args.x), std::pair("pooled", &args.pooled)}) {
    require_dtype(what, *tensor, config.dtype);
    require_rank(what, *tensor, 3, "tokens, heads, head_dim");
  }
  const int64_t heads = args.x.shape[1];
  require_shape("x", args.x, {args.x.shape[0], heads, config.head_dim});
  require_shape("pooled", args.pooled, {args.pooled.shape[0], heads, config.head_dim});
  require_ends("cu_seqlens", args.cu_seqlens);
  require_dtype("cu_windows", args.cu_windows, I32);
  require_shape("cu_windows", args.cu_windows, {args.cu_seqlens.shape[0]});
  require_longest(args.max_seqlen);
}

void check(const MaxPoolConfig&, const MaxPoolArgs& args) {
  for (auto [what, tensor] :
       {std::pair("scores", &args.scores), std::pair("pooled", &args.pooled)}) {
    require_dtype(what, *tensor, F32);
    require_rank(what, *tensor, 3, "heads_kv, tokens, windows or blocks");
  }
  require_shape("pooled", args.pooled,
                {args.scores.shape[0], args.scores.shape[1], args.pooled.shape[2]});
  require_ends("cu_seqlens", args.cu_seqlens);
  const int64_t ends = args.cu_seqlens.shape[0];
  require_dtype("cu_windows", args.cu_windows, I32);
  require_shape("cu_windows", args.cu_windows, {ends});
  require_dtype("cache_lens", args.cache_lens, I32);
  require_shape("cache_lens", args.cache_lens, {ends - 1});
  require_longest(args.max_seqlen);
}

MeanPool mean_pool(Device& device, const MeanPoolConfig& config) {
  return {device, validated(config)};
}
MaxPool max_pool(Device& device, const MaxPoolConfig& config) {
  return {device, validated(config)};
}

MeanPoolReference mean_pool_reference(const MeanPoolConfig& c, const MeanPoolArgs& args) {
  const Shape& shape = args.pooled.shape;
  MeanPoolReference result;
  result.pooled.resize(static_cast<size_t>(count(shape)));
  result.cu_windows = {0};
  for (int64_t b = 0; b + 1 < args.cu_seqlens.shape[0]; ++b) {
    const auto before = static_cast<int64_t>(result.cu_windows.back());
    const int64_t there = windows_of(c, length_of(args.cu_seqlens, b, args.max_seqlen));
    result.cu_windows.push_back(static_cast<double>(before + there));
    for (int64_t w = 0; w < there && before + w < shape[0]; ++w)
      for (int64_t h = 0; h < shape[1]; ++h)
        for (int64_t d = 0; d < shape[2]; ++d) {
          double sum = 0;
          for (int64_t t = 0; t < c.window; ++t)
            sum += load_double(args.x, {load_int(args.cu_seqlens, {b}) + w * c.stride + t, h, d});
          result.pooled[static_cast<size_t>(((before + w) * shape[1] + h) * shape[2] + d)] =
              sum / static_cast<double>(c.window);
        }
  }
  return result;
}

std::vector<double> max_pool_reference(const MaxPoolConfig& c, const MaxPoolArgs& args) {
  const Shape& shape = args.pooled.shape;
  const int64_t ratio = c.block / c.stride;
  std::vector<double> pooled(static_cast<size_t>(count(shape)));
  for (int64_t b = 0; b + 1 < args.cu_seqlens.shape[0]; ++b) {
    const int64_t windows = length_of(args.cu_windows, b, args.scores.shape[2]);
    for (int64_t i = 0; i < length_of(args.cu_seqlens, b, args.max_seqlen); ++i)
      for (int64_t h = 0; h < shape[0]; ++h)
        for (int64_t block = 0; block < shape[2]; ++block) {
          const int64_t token = load_int(args.cu_seqlens, {b}) + i;
          const int64_t own = (i + load_int(args.cache_lens, {b})) / c.block;
          const int64_t reach = block + c.local - (c.local_inclusive ? 0 : 1);
          double best = -kInfinity;
          for (int64_t w = std::max<int64_t>(block * ratio - 1, 0);
               w < std::min(block * ratio + ratio, windows); ++w)
            best = std::max(best, load_double(args.scores, {h, token, w}));
          if (block < c.init || (own >= block && own <= reach)) best = kInfinity;
          pooled[static_cast<size_t>((h * shape[1] + token) * shape[2] + block)] = best;
        }
  }
  return pooled;
}

KernelEntry mean_pool_entry() {
  KernelEntry entry;
  entry.name = "mean_pool";
  entry.summary = "means of windows of packed sequences, after InfLLM-V2";
  entry.options = {{"dtype", "f16", "f16, bf16 or f32", "element type of x and its means"},
                   {"head_dim", "128", "1 to 512", "head dimension"},
                   {"window", "32", "1 or more", "tokens of a window"},
                   {"stride", "16", "1 to the window", "tokens from window to window"}};
  entry.shipped = {{}, {{"window", "128"}, {"stride", "64"}}};
  entry.build = [](const Options& options, std::string_view) {
    return mean_pool_kernel(mean_config(options));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options& options, const Bindings& bindings) {
    check(mean_config(options), mean_args(bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    MeanPoolReference reference = mean_pool_reference(mean_config(options), mean_args(bindings));
    return ReferenceResults{{"pooled", std::move(reference.pooled)},
                            {"cu_windows", std::move(reference.cu_windows)}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const MeanPoolArgs args = mean_args(bindings);
    return Work{static_cast<double>(count(args.pooled.shape) * mean_config(options).window),
                bytes_of(args.x) + bytes_of(args.pooled)};
  };
  return entry;
}

KernelEntry max_pool_entry() {
  KernelEntry entry;
  entry.name = "max_pool";
  entry.summary = "the largest window's score of each block of keys, after InfLLM-V2";
  entry.options = {{"block", "64", "1 or more", "tokens of a block"},
                   {"stride", "16", "a divisor of the block", "tokens from window to window"},
                   {"init", "1", "0 or more", "blocks in front that get +inf"},
                   {"local", "16", "0 or more", "blocks before the query's own that get +inf"},
                   {"local_inclusive", "true", "true or false",
                    "the query's own block is not one of the local ones"}};
  entry.build = [](const Options& options, std::string_view) {
    return max_pool_kernel(max_config(options));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options& options, const Bindings& bindings) {
    check(max_config(options), max_args(bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    return ReferenceResults{
        {"pooled", max_pool_reference(max_config(options), max_args(bindings))}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const MaxPoolConfig config = max_config(options);
    const MaxPoolArgs args = max_args(bindings);
    return Work{static_cast<double>(count(args.pooled.shape) * (config.block / config.stride + 1)),
                bytes_of(args.scores) + bytes_of(args.pooled)};
  };
  return entry;
}

}  // namespace kiln
