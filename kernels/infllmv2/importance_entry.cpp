// Checks, calls by name, and plain float64 of importances and their means.
#include <cmath>

#include "kernels/infllmv2/importance.h"
#include "kernels/infllmv2/packed.h"

namespace kiln {
namespace {

using namespace infllmv2;

ImportanceConfig importance_config(const Options& options) {
  ImportanceConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16});
  config.head_dim = options.integer("head_dim");
  config.heads_kv = options.integer("heads_kv");
  config.bias = options.boolean("bias");
  return validated(config);
}
ImportanceArgs importance_args(const ImportanceConfig& config, const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  ImportanceArgs args{tensors.at("v"), tensors.at("weights"), tensors.at("amplitude"),
                      tensors.at("importance")};
  if (config.bias) args.bias = tensors.at("bias");
  return args;
}

NosaMeanConfig mean_config(const Options& options) {
  NosaMeanConfig config;
  config.window = options.integer("window");
  config.stride = options.integer("stride");
  return validated(config);
}
NosaMeanArgs mean_args(const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  return {tensors.at("importance"), tensors.at("cu_seqlens"), tensors.at("means")};
}

}  // namespace

ImportanceConfig validated(const ImportanceConfig& config) {
  if (config.dtype != F16 && config.dtype != BF16)
    throw UserError(fmt::format("dtype: expected f16 or bf16, got {}", name(config.dtype)));
  require("head_dim", config.head_dim, 16, 256);
  if (config.head_dim % 16)
    throw UserError(
        fmt::format("head_dim: expected a multiple of 16, 16 to 256, got {}", config.head_dim));
  require("heads_kv", config.heads_kv, 1, 64);
  return config;
}

NosaMeanConfig validated(const NosaMeanConfig& config) {
  require("window", config.window, 1, 1 << 20);
  require("stride", config.stride, 1, config.window);
  return config;
}

void check(const ImportanceConfig& config, const ImportanceArgs& args) {
  for (auto [what, tensor] : {std::pair("v", &args.v), std::pair("weights", &args.weights)}) {
    require_dtype(what, *tensor, config.dtype);
    require_rank(what, *tensor, 3, "tokens or heads_kv, heads_kv, head_dim");
  }
  const int64_t tokens = args.v.shape[0];
  require_shape("v", args.v, {tokens, config.heads_kv, config.head_dim});
  require_shape("weights", args.weights, {config.heads_kv, config.heads_kv, config.head_dim});
  require_dtype("amplitude", args.amplitude, F32);
  require_shape("amplitude", args.amplitude, {config.heads_kv});
  if (present("bias", args.bias, config.bias)) {
    require_dtype("bias", *args.bias, F32);
    require_shape("bias", *args.bias, {config.heads_kv});
  }
  require_dtype("importance", args.importance, F32);
  require_shape("importance", args.importance, {tokens, config.heads_kv});
}

void check(const NosaMeanConfig&, const NosaMeanArgs& args) {
  require_dtype("importance", args.importance, F32);
  require_rank("importance", args.importance, 2, "tokens, heads_kv");
  require_ends("cu_seqlens", args.cu_seqlens);
  require_dtype("means", args.means, F32);
  require_rank("means", args.means, 3, "heads_kv, batch, windows");
  require_shape("means", args.means,
                {args.importance.shape[1], args.cu_seqlens.shape[0] - 1, args.means.shape[2]});
}

std::array<const Memory*, 5> ImportanceInterface::tensors(const Args& args) {
  return {&args.v, &args.weights, &args.amplitude, &args.importance, given(args.bias)};
}

Importance token_importance(Device& device, const ImportanceConfig& config) {
  return {device, validated(config)};
}
NosaMeanPool nosa_mean_pool(Device& device, const NosaMeanConfig& config) {
  return {device, validated(config)};
}

std::vector<double> importance_reference(const ImportanceConfig& c, const ImportanceArgs& args) {
  std::vector<double> result;
  for (int64_t t = 0; t < args.v.shape[0]; ++t)
    for (int64_t h = 0; h < c.heads_kv; ++h) {
      double x = c.bias ? load_double(*args.bias, {h}) : 0;
      for (int64_t g = 0; g < c.heads_kv; ++g)
        for (int64_t d = 0; d < c.head_dim; ++d)
          x += load_double(args.weights, {h, g, d}) * load_double(args.v, {t, g, d});
      result.push_back(load_double(args.amplitude, {h}) *
                       (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))));
    }
  return result;
}

std::vector<double> nosa_mean_reference(const NosaMeanConfig& c, const NosaMeanArgs& args) {
  const Shape& shape = args.means.shape;
  std::vector<double> means;
  for (int64_t h = 0; h < shape[0]; ++h)
    for (int64_t b = 0; b < shape[1]; ++b)
      for (int64_t m = 0; m < shape[2]; ++m) {
        const int64_t begin = m * c.stride;
        double sum = 0;
        if (begin + c.window <= length_of(args.cu_seqlens, b, args.importance.shape[0]))
          for (int64_t t = 0; t < c.window; ++t)
            sum += load_double(args.importance, {load_int(args.cu_seqlens, {b}) + begin + t, h});
        means.push_back(sum / static_cast<double>(c.window));
      }
  return means;
}

KernelEntry token_importance_entry() {
  KernelEntry entry;
  entry.name = "token_importance";
  entry.summary = "an importance for each token and kv head from its values, after NOSA";
  entry.options = {{"dtype", "f16", "f16 or bf16", "element type of v and weights"},
                   {"head_dim", "128", "16 to 256, a multiple of 16", "head dimension of v"},
                   {"heads_kv", "2", "1 to 64", "kv heads"},
                   {"bias", "false", "true or false", "a bias for each kv head"}};
  entry.build = [](const Options& options, std::string_view) {
    return importance_kernel(importance_config(options));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const ImportanceConfig config = importance_config(options);
    check(config, importance_args(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const ImportanceConfig config = importance_config(options);
    return ReferenceResults{
        {"importance", importance_reference(config, importance_args(config, bindings))}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const ImportanceConfig config = importance_config(options);
    const ImportanceArgs args = importance_args(config, bindings);
    return Work{2.0 * static_cast<double>(count(args.v.shape) * config.heads_kv),
                bytes_of(args.v) + bytes_of(args.importance)};
  };
  return entry;
}

KernelEntry nosa_mean_pool_entry() {
  KernelEntry entry;
  entry.name = "nosa_mean_pool";
  entry.summary = "means of windows of importances, after NOSA";
  entry.options = {{"window", "32", "1 or more", "tokens of a window"},
                   {"stride", "16", "1 to the window", "tokens from window to window"}};
  entry.build = [](const Options& options, std::string_view) {
    return nosa_mean_pool_kernel(mean_config(options));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options& options, const Bindings& bindings) {
    check(mean_config(options), mean_args(bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    return ReferenceResults{
        {"means", nosa_mean_reference(mean_config(options), mean_args(bindings))}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const NosaMeanArgs args = mean_args(bindings);
    return Work{static_cast<double>(count(args.means.shape) * mean_config(options).window),
                bytes_of(args.importance) + bytes_of(args.means)};
  };
  return entry;
}

}  // namespace kiln
