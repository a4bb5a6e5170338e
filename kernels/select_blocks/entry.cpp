#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"
#include "kernels/compare.h"
#include "kernels/select_blocks/select_blocks.h"

namespace kiln {
namespace {

constexpr std::string_view kBy[] = {"threshold", "top_k"};                   // as SelectBy
constexpr std::string_view kReduce[] = {"none", "mean", "any", "majority"};  // as HeadReduce

bool reduces(const SelectConfig& config) {
  return config.reduce != HeadReduce::None;
}
bool votes(const SelectConfig& config) {
  return config.reduce == HeadReduce::Any || config.reduce == HeadReduce::Majority;
}
bool by_mass(const SelectConfig& config) {
  return config.by == SelectBy::Threshold;
}

SelectConfig config_of(const Options& options) {
  SelectConfig config = select_config(options);
  config.causal = options.boolean("causal");
  config.ref_chunk = options.integer("ref_chunk");
  return validated(config);
}

SelectArgs args_of(const SelectConfig& config, const Bindings& bindings) {
  const auto& tensors = bindings.tensors;
  return {choice_args(config, bindings), tensors.at("scores"), tensors.at("first"),
          tensors.at("blocks")};
}

ChoiceResults reference(const SelectConfig& config, const SelectArgs& args) {
  const Shape& shape = args.scores.shape;
  return choose_rows(
      config, args, shape, to_doubles(args.scores), [&](int64_t b, int64_t row) -> RowChoice {
        const auto first = static_cast<int64_t>(load_double(args.first, {b}));
        const auto blocks = static_cast<int64_t>(load_double(args.blocks, {b}));
        const int64_t there = std::clamp<int64_t>(blocks, 0, shape[3]);
        RowChoice place;
        place.visible = config.causal ? std::clamp<int64_t>(first + row + 1, 0, there) : there;
        place.low_diagonal = place.diagonal = first + row;
        place.first_row = row == 0;
        place.first_chunk =
            first == 0 && row > 0 && (config.ref_chunk == 0 || row < config.ref_chunk);
        return place;
      });
}

}  // namespace

SelectConfig validated(const SelectConfig& config) {
  if (config.ref_chunk < 0)
    throw UserError(fmt::format("ref_chunk: expected 0 or more, got {}", config.ref_chunk));
  if (config.ref_chunk && !config.ref_compat)
    throw UserError("ref_chunk: expected 0 without ref_compat");
  if (config.ref_compat && !by_mass(config))
    throw UserError("ref_compat: expected false with by = top_k, which the public code lacks");
  if (config.ref_compat && !(config.force_sink && config.force_diag))
    throw UserError("ref_compat: expected force_sink and force_diag, as in the public code");
  return config;
}

void check(const SelectConfig& config, const SelectArgs& args) {
  require_dtype("scores", args.scores, F32);
  require_rank("scores", args.scores, 4, "batch, heads, rows, cols");
  for (auto [what, tensor] : {std::pair("first", &args.first), std::pair("blocks", &args.blocks)}) {
    require_dtype(what, *tensor, I32);
    require_shape(what, *tensor, {args.scores.shape[0]});
  }
  check_choice(config, "scores", args.scores, args);
}

void check_amount(const SelectConfig& config, const std::optional<Memory>& thresholds,
                  const std::optional<float>& given, const std::optional<int64_t>& top_k,
                  int64_t heads) {
  if (config.per_head) {
    const Memory& all = required("thresholds", thresholds);
    require_dtype("thresholds", all, by_mass(config) ? F32 : I32);
    require_shape("thresholds", all, {heads});
    return;
  }
  refuse("thresholds", thresholds, "without per_head");
  if (by_mass(config)) {
    const float threshold = given.value_or(kDefaultThreshold);
    if (!(threshold > 0 && threshold <= 1))
      throw UserError(fmt::format("threshold: expected above 0, at most 1, got {}", threshold));
    return;
  }
  if (!top_k) throw UserError("top_k: missing");
  const int64_t forced = config.causal ? config.force_sink + config.force_diag : 0;
  if (*top_k < forced || *top_k > std::numeric_limits<int32_t>::max())
    throw UserError(fmt::format("top_k: expected {} (the forced blocks) to {}, got {}", forced,
                                std::numeric_limits<int32_t>::max(), *top_k));
}

void check_choice(const SelectConfig& config, const char* what, const Memory& scores,
                  const ChoiceArgs& args) {
  const Shape& shape = scores.shape;
  const int64_t batch = shape[0], heads = shape[1], rows = shape[2], cols = shape[3];
  require_dtype("mask", args.mask, Bool);
  require_rank("mask", args.mask, 4, "batch, heads, rows, cols");
  const int64_t out_heads = reduces(config) ? args.mask.shape[1] : heads;
  require_shape("mask", args.mask, {batch, out_heads, rows, cols});
  if (out_heads == 0 ? heads != 0 : heads % out_heads != 0)
    throw UserError(fmt::format("{}: expected heads that are a multiple of the mask's {}, got {}",
                                what, out_heads, heads));
  if (config.list) {
    require_dtype("counts", required("counts", args.counts), I32);
    require_shape("counts", *args.counts, {batch, out_heads, rows});
    require_dtype("indices", required("indices", args.indices), I32);
    require_shape("indices", *args.indices, {batch, out_heads, rows, cols});
  } else {
    refuse("counts", args.counts, "without list");
    refuse("indices", args.indices, "without list");
  }
  check_amount(config, args.thresholds, args.threshold, args.top_k,
               votes(config) ? heads : out_heads);
}

std::optional<Scalar> amount_of(const SelectConfig& config, const std::optional<float>& threshold,
                                const std::optional<int64_t>& top_k) {
  if (config.per_head) return std::nullopt;
  if (by_mass(config)) return Scalar::of_float(F32, threshold.value_or(kDefaultThreshold));
  return Scalar::of_int(I32, *top_k);
}

std::array<const Memory*, 7> SelectInterface::tensors(const Args& args) {
  return {&args.scores, &args.first,        &args.blocks,       given(args.thresholds),
          &args.mask,   given(args.counts), given(args.indices)};
}

CallScalars<1> SelectInterface::scalars(const Config& config, const Args& args) {
  const auto amount = amount_of(config, args.threshold, args.top_k);
  return amount ? CallScalars<1>{{{*amount}}, {}} : CallScalars<1>{{{}, 0}, {}};
}

Limits SelectInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch},
          {"heads", limits.heads},
          {"out_heads", limits.heads},
          {"rows", limits.rows},
          {"cols", limits.cols}};
}

SelectBlocks select_blocks(Device& device, const SelectConfig& config) {
  return {device, validated(config)};
}

std::vector<OptionInfo> select_options() {
  return {
      {"by", "threshold", "threshold or top_k", "what the choice of a row follows"},
      {"per_head", "false", "true or false", "thresholds (or ks) are a tensor, one a head"},
      {"reduce", "none", "none, mean, any or majority", "of the heads that share a kv head"},
      {"force_sink", "true", "true or false", "block 0 is chosen first"},
      {"force_diag", "true", "true or false", "the diagonal is chosen first"},
      {"keep_sink", "false", "true or false", "block 0 is added to the choice"},
      {"keep_recent", "false", "true or false", "the diagonal is added to the choice"},
      {"list", "true", "true or false", "also write counts and indices"},
      {"ref_compat", "false", "true or false", "choose as the public code of XAttention does"},
  };
}

SelectConfig select_config(const Options& options) {
  SelectConfig config;
  config.by = static_cast<SelectBy>(options.choice("by", kBy));
  config.per_head = options.boolean("per_head");
  config.reduce = static_cast<HeadReduce>(options.choice("reduce", kReduce));
  config.force_sink = options.boolean("force_sink");
  config.force_diag = options.boolean("force_diag");
  config.keep_sink = options.boolean("keep_sink");
  config.keep_recent = options.boolean("keep_recent");
  config.list = options.boolean("list");
  config.ref_compat = options.boolean("ref_compat");
  return config;
}

ChoiceArgs choice_args(const SelectConfig& config, const Bindings& bindings) {
  const auto find = [&](const char* name) { return tensor_of(bindings, name); };
  ChoiceArgs args{*find("mask"), find("counts"), find("indices"), find("thresholds")};
  if (config.per_head) return args;
  if (by_mass(config))
    args.threshold = static_cast<float>(bindings.params.at("threshold").f);
  else
    args.top_k = bindings.params.at("top_k").i;
  return args;
}

std::map<std::string, Scalar> default_amount(const SelectConfig& config) {
  constexpr int64_t kDefaultBlocks = 16;
  if (config.per_head) return {};
  if (by_mass(config)) return {{"threshold", Scalar::of_float(F32, kDefaultThreshold)}};
  return {{"top_k", Scalar::of_int(I32, kDefaultBlocks)}};
}

ReferenceResults results_of(const SelectConfig& config, ChoiceResults results) {
  ReferenceResults all{{"mask", std::move(results.mask)}};
  if (!config.list) return all;
  all["counts"] = std::move(results.counts);
  all["indices"] = std::move(results.indices);
  return all;
}

KernelEntry select_blocks_entry() {
  KernelEntry entry;
  entry.name = "select_blocks";
  entry.summary = "mask and lists of the blocks that a threshold of mass, or the k best, choose";
  entry.options = select_options();
  entry.options.push_back(
      {"causal", "true", "true or false", "a row sees the blocks up to its diagonal"});
  entry.options.push_back(
      {"ref_chunk", "0", "0 or more; 0: all", "rows that the public code looks at together"});
  entry.shipped = {{}, {{"by", "top_k"}}};
  entry.build = [](const Options& options, std::string_view) {
    return select_blocks_kernel(config_of(options));
  };
  entry.default_params = [](const Options& options) { return default_amount(config_of(options)); };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const SelectConfig config = config_of(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const SelectConfig config = config_of(options);
    return results_of(config, reference(config, args_of(config, bindings)));
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const double scores = static_cast<double>(count(bindings.tensors.at("scores").shape));
    const double chosen = static_cast<double>(count(bindings.tensors.at("mask").shape));
    // Each score is looked at once a bit.
    return Work{32 * scores, 4 * scores + (config_of(options).list ? 5 : 1) * chosen};
  };
  return entry;
}

}  // namespace kiln
