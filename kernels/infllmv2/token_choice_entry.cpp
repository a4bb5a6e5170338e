// Checks, the call by name, and plain loops of token_choice.
#include <limits>
#include <numeric>

#include "kernels/infllmv2/packed.h"
#include "kernels/infllmv2/token_choice.h"

namespace kiln {
namespace {

using namespace infllmv2;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TokenChoiceConfig config_of(const Options& options) {
  TokenChoiceConfig config;
  config.topk = options.integer("topk");
  config.block = options.integer("block");
  config.init = options.integer("init");
  config.local = options.integer("local");
  config.local_inclusive = options.boolean("local_inclusive");
  config.nosa = options.boolean("nosa");
  config.select = options.integer("select");
  config.stride = options.integer("stride");
  return validated(config);
}

TokenChoiceArgs args_of(const TokenChoiceConfig& config, const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  TokenChoiceArgs args{tensors.at("scores"), tensors.at("cu_seqlens"), tensors.at("cache_lens"),
                       tensors.at("indices")};
  if (config.nosa) {
    args.importance = tensors.at("importance");
    args.cu_windows = tensors.at("cu_windows");
  }
  args.max_seqlen = bindings.dims.at("seq");
  return args;
}

// The k best of a row, the lower block first among equal ones; -inf and NaN are none.
std::vector<bool> best(const std::vector<double>& scores, int64_t k) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::erase_if(order, [&](size_t block) { return !(scores[block] > -kInfinity); });
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (static_cast<int64_t>(order.size()) > k) order.resize(static_cast<size_t>(k));
  std::vector<bool> chosen(scores.size());
  for (size_t block : order) chosen[block] = true;
  return chosen;
}

double pooled_importance(const TokenChoiceConfig& c, const TokenChoiceArgs& args, int64_t h,
                         int64_t b, int64_t block) {
  const int64_t ratio = c.block / c.stride;
  const int64_t windows = length_of(*args.cu_windows, b, args.importance->shape[2]);
  double most = -kInfinity;
  for (int64_t w = std::max<int64_t>(block * ratio - 1, 0);
       w < std::min(block * ratio + ratio, windows); ++w)
    most = std::max(most, load_double(*args.importance, {h, b, w}));
  return most;
}

}  // namespace

TokenChoiceConfig validated(const TokenChoiceConfig& config) {
  require("topk", config.topk, 1, 128);
  require("block", config.block, 1, 1 << 20);
  require("init", config.init, 0, 128);
  require("local", config.local, 0, 128);
  if (config.topk < config.forced())
    throw UserError(fmt::format(
        "topk: expected at least the {} blocks that are forced (init {}, local {}{}), got {}",
        config.forced(), config.init, config.local, config.local_inclusive ? " and its own" : "",
        config.topk));
  if (!config.nosa) return config;
  require("stride", config.stride, 1, config.block);
  if (config.block % config.stride)
    throw UserError(fmt::format("stride: expected a divisor of the block's {} tokens, got {}",
                                config.block, config.stride));
  require("select", config.select, 0, 128);
  const int64_t first = config.init + config.local + config.select;
  if (first < config.forced() || first > config.topk)
    throw UserError(fmt::format(
        "select: expected init + local + select to be {} (what is forced) to {} (topk), got {}",
        config.forced(), config.topk, first));
  return config;
}

void check(const TokenChoiceConfig& config, const TokenChoiceArgs& args) {
  require_dtype("scores", args.scores, F32);
  require_rank("scores", args.scores, 3, "heads_kv, tokens, blocks");
  const int64_t heads = args.scores.shape[0];
  require_dtype("indices", args.indices, I32);
  require_shape("indices", args.indices, {heads, args.scores.shape[1], config.topk});
  require_ends("cu_seqlens", args.cu_seqlens);
  const int64_t batch = args.cu_seqlens.shape[0] - 1;
  require_dtype("cache_lens", args.cache_lens, I32);
  require_shape("cache_lens", args.cache_lens, {batch});
  require_longest(args.max_seqlen);
  if (present("importance", args.importance, config.nosa)) {
    require_dtype("importance", *args.importance, F32);
    require_rank("importance", *args.importance, 3, "heads_kv, batch, windows");
    require_shape("importance", *args.importance, {heads, batch, args.importance->shape[2]});
    if (args.scores.shape[2] > config.kMostBlocks)
      throw UserError(fmt::format("scores: expected at most {} blocks, got {}", config.kMostBlocks,
                                  args.scores.shape[2]));
  }
  if (present("cu_windows", args.cu_windows, config.nosa)) {
    require_dtype("cu_windows", *args.cu_windows, I32);
    require_shape("cu_windows", *args.cu_windows, {batch + 1});
  }
}

std::array<const Memory*, 6> TokenChoiceInterface::tensors(const Args& args) {
  return {&args.scores,  &args.cu_seqlens,       &args.cache_lens,
          &args.indices, given(args.importance), given(args.cu_windows)};
}

TokenChoice token_choice(Device& device, const TokenChoiceConfig& config) {
  return {device, validated(config)};
}

std::vector<double> token_choice_reference(const TokenChoiceConfig& c,
                                           const TokenChoiceArgs& args) {
  const Shape& shape = args.indices.shape;
  const int64_t blocks = args.scores.shape[2];
  std::vector<double> indices(static_cast<size_t>(count(shape)), -1);
  for (int64_t b = 0; b + 1 < args.cu_seqlens.shape[0]; ++b)
    for (int64_t i = 0; i < length_of(args.cu_seqlens, b, args.max_seqlen); ++i)
      for (int64_t h = 0; h < shape[0]; ++h) {
        const int64_t token = load_int(args.cu_seqlens, {b}) + i;
        const int64_t own = (i + std::max<int64_t>(load_int(args.cache_lens, {b}), 0)) / c.block;
        std::vector<double> scores(static_cast<size_t>(std::min(own + 1, blocks)));
        for (size_t n = 0; n < scores.size(); ++n)
          scores[n] = load_double(args.scores, {h, token, static_cast<int64_t>(n)});
        if (c.nosa) {
          const std::vector<bool> first = best(scores, c.init + c.local + c.select);
          for (size_t n = 0; n < scores.size(); ++n)
            scores[n] =
                first[n] ? kInfinity : pooled_importance(c, args, h, b, static_cast<int64_t>(n));
        }
        const std::vector<bool> chosen = best(scores, c.topk);
        auto place = static_cast<size_t>((h * shape[1] + token) * c.topk);
        for (size_t n = 0; n < chosen.size(); ++n)
          if (chosen[n]) indices[place++] = static_cast<double>(n);
      }
  return indices;
}

KernelEntry token_choice_entry() {
  KernelEntry entry;
  entry.name = "token_choice";
  entry.summary = "the blocks that each token attends to, after InfLLM-V2 and NOSA";
  entry.options = {
      {"topk", "64", "1 to 128", "blocks of a list"},
      {"block", "64", "1 or more", "tokens of a block"},
      {"init", "1", "0 to 128", "blocks in front that are forced"},
      {"local", "16", "0 to 128", "blocks before the query's own that are forced"},
      {"local_inclusive", "true", "true or false", "the query's own block is not one of those"},
      {"nosa", "false", "true or false", "two stages, the second by importance"},
      {"select", "16", "0 to 128", "with nosa: blocks by score besides the forced ones"},
      {"stride", "16", "a divisor of the block", "with nosa: tokens from window to window"}};
  entry.shipped = {{}, {{"nosa", "true"}}};
  entry.build = [](const Options& options, std::string_view) {
    return token_choice_kernel(config_of(options));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const TokenChoiceConfig config = config_of(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const TokenChoiceConfig config = config_of(options);
    return ReferenceResults{{"indices", token_choice_reference(config, args_of(config, bindings))}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const TokenChoiceConfig config = config_of(options);
    const TokenChoiceArgs args = args_of(config, bindings);
    return Work{static_cast<double>(count(args.scores.shape)),
                bytes_of(args.scores) + bytes_of(args.indices)};
  };
  return entry;
}

}  // namespace kiln
