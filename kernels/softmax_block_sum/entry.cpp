#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"
#include "kernels/softmax_block_sum/softmax_block_sum.h"

namespace kiln {
namespace {

BlockSumConfig config_of(const Options& options) {
  return validated({.dtype = options.dtype("dtype", {F16, BF16, F32}),
                    .block = options.integer("block"),
                    .causal = options.boolean("causal")});
}

BlockSumArgs args_of(const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  return {tensors.at("scores"), tensors.at("first"),
          tensors.at("real_q"), tensors.at("real_k"),
          tensors.at("sums"),   static_cast<float>(bindings.params.at("scale").f)};
}

std::vector<double> reference(const BlockSumConfig& config, const BlockSumArgs& args) {
  const Shape &shape = args.scores.shape, &blocks = args.sums.shape;
  std::vector<double> sums(static_cast<size_t>(count(blocks)));
  for (int64_t b = 0; b < shape[0]; ++b)
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t row = 0; row < shape[2]; ++row) {
        const int64_t own = load_int(args.first, {b}) + row;
        const int64_t there = std::clamp<int64_t>(load_int(args.real_k, {b}), 0, shape[3]);
        const int64_t seen = config.causal ? std::clamp<int64_t>(own + 1, 0, there) : there;
        if (own >= load_int(args.real_q, {b})) continue;
        double* to =
            sums.data() + ((b * shape[1] + h) * blocks[2] + row / config.block) * blocks[3];
        softmax_sums(
            seen, config.block, args.scale,
            [&](int64_t col) {
              return load_double(args.scores, {b, h, row, col});
            },
            to);
      }
  return sums;
}

}  // namespace

void softmax_sums(int64_t seen, int64_t block, double scale,
                  const std::function<double(int64_t)>& score, double* sums) {
  std::vector<double> weights(static_cast<size_t>(seen));
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t col = 0; col < seen; ++col) top = std::max(top, weights[col] = scale * score(col));
  for (double& weight : weights) total += weight = std::exp(weight - top);
  for (int64_t col = 0; col < seen; ++col) sums[col / block] += weights[col] / total;
}

BlockSumConfig validated(const BlockSumConfig& config) {
  if (config.dtype != F16 && config.dtype != BF16 && config.dtype != F32)
    throw UserError(fmt::format("dtype: expected f16, bf16 or f32, got {}", name(config.dtype)));
  if (config.block < 1 || config.block > 64 || !std::has_single_bit<uint64_t>(config.block))
    throw UserError(fmt::format("block: expected 1 to 64, a power of two, got {}", config.block));
  return config;
}

void require_scale(float scale) {
  if (!(scale > 0) || !std::isfinite(scale))
    throw UserError(fmt::format("scale: expected a finite number above 0, got {}", scale));
}

void check(const BlockSumConfig& config, const BlockSumArgs& args) {
  require_dtype("scores", args.scores, config.dtype);
  require_rank("scores", args.scores, 4, "batch, heads, rows, cols");
  const Shape& shape = args.scores.shape;
  for (auto [what, tensor] : {std::pair("first", &args.first), std::pair("real_q", &args.real_q),
                              std::pair("real_k", &args.real_k)}) {
    require_dtype(what, *tensor, I32);
    require_shape(what, *tensor, {shape[0]});
  }
  const auto blocks = [&](int64_t cells) { return (cells + config.block - 1) / config.block; };
  require_dtype("sums", args.sums, F32);
  require_shape("sums", args.sums, {shape[0], shape[1], blocks(shape[2]), blocks(shape[3])});
  require_scale(args.scale);
}

std::array<const Memory*, 5> BlockSumInterface::tensors(const Args& args) {
  return {&args.scores, &args.first, &args.real_q, &args.real_k, &args.sums};
}

CallScalars<1> BlockSumInterface::scalars(const Config&, const Args& args) {
  return {{{Scalar::of_float(F32, args.scale)}}, {}};
}

Limits BlockSumInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch},
          {"heads", limits.heads},
          {"rows", limits.rows},
          {"cols", limits.cols}};
}

SoftmaxBlockSum softmax_block_sum(Device& device, const BlockSumConfig& config) {
  return {device, validated(config)};
}

KernelEntry softmax_block_sum_entry() {
  KernelEntry entry;
  entry.name = "softmax_block_sum";
  entry.summary = "how much of each row's softmax falls into each block, after XAttention";
  entry.options = {
      {"dtype", "f16", "f16, bf16 or f32", "element type of the scores"},
      {"block", "16", "1 to 64, a power of two", "rows and columns of a block"},
      {"causal", "true", "true or false", "row r sees the columns up to first + r"},
  };
  entry.shipped = {{}, {{"block", "8"}}};
  entry.build = [](const Options& options, std::string_view) {
    return softmax_block_sum_kernel(config_of(options));
  };
  entry.default_params = [](const Options&) {
    return std::map<std::string, Scalar>{{"scale", Scalar::of_float(F32, 1)}};
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    check(config_of(options), args_of(bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    return ReferenceResults{{"sums", reference(config_of(options), args_of(bindings))}};
  };
  entry.work = [](const Options&, const Bindings& bindings) {
    const Memory &scores = bindings.tensors.at("scores"), &sums = bindings.tensors.at("sums");
    const double cells = static_cast<double>(count(scores.shape));
    return Work{6 * cells, 2 * cells * static_cast<double>(size_of(scores.dtype)) +
                               4 * static_cast<double>(count(sums.shape))};
  };
  return entry;
}

}  // namespace kiln
