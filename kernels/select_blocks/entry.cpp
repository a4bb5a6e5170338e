#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/argument_checks.h"
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
  SelectConfig config;
  config.by = static_cast<SelectBy>(options.choice("by", kBy));
  config.causal = options.boolean("causal");
  config.per_head = options.boolean("per_head");
  config.reduce = static_cast<HeadReduce>(options.choice("reduce", kReduce));
  config.force_sink = options.boolean("force_sink");
  config.force_diag = options.boolean("force_diag");
  config.keep_sink = options.boolean("keep_sink");
  config.keep_recent = options.boolean("keep_recent");
  config.list = options.boolean("list");
  config.ref_compat = options.boolean("ref_compat");
  config.ref_chunk = options.integer("ref_chunk");
  return validated(config);
}

SelectArgs args_of(const SelectConfig& config, const Bindings& bindings) {
  const auto find = [&](const char* name) -> std::optional<Memory> {
    auto it = bindings.tensors.find(name);
    return it == bindings.tensors.end() ? std::nullopt : std::optional(it->second);
  };
  SelectArgs args{*find("scores"),
                  *find("first"),
                  *find("blocks"),
                  *find("mask"),
                  find("counts"),
                  find("indices"),
                  {},
                  {},
                  find("thresholds")};
  if (config.per_head) return args;
  if (by_mass(config))
    args.threshold = static_cast<float>(bindings.params.at("threshold").f);
  else
    args.k = bindings.params.at("k").i;
  return args;
}

int64_t group_of(const SelectArgs& args) {
  return args.mask.shape[1] ? args.scores.shape[1] / args.mask.shape[1] : 1;
}

// The masks of all rows, heads reduced.
class Reference {
 public:
  Reference(const SelectConfig& config, const SelectArgs& args) : c_(config), args_(args) {}

  ReferenceResults results() const {
    const Shape& shape = args_.mask.shape;
    std::vector<double> mask, counts, indices;
    for (int64_t b = 0; b < shape[0]; ++b)
      for (int64_t h = 0; h < shape[1]; ++h)
        for (int64_t row = 0; row < shape[2]; ++row) {
          const std::vector<bool> chosen = row_of(b, h, row);
          const size_t end = indices.size() + chosen.size();
          int64_t count = 0;
          for (size_t c = 0; c < chosen.size(); ++c) {
            mask.push_back(chosen[c]);
            if (chosen[c]) indices.push_back(static_cast<double>(c)), ++count;
          }
          indices.resize(end, -1);
          counts.push_back(static_cast<double>(count));
        }
    ReferenceResults all{{"mask", std::move(mask)}};
    if (c_.list) all["counts"] = std::move(counts), all["indices"] = std::move(indices);
    return all;
  }

 private:
  std::vector<bool> row_of(int64_t b, int64_t h, int64_t row) const {
    const int64_t group = group_of(args_);
    std::vector<std::vector<bool>> masks;
    for (int64_t member = 0; votes(c_) && member < group; ++member)
      masks.push_back(choice(b, h * group + member, 1, row));
    return votes(c_) ? reduce_masks(c_.reduce, masks) : choice(b, h, group, row);
  }

  // From the mean of `members` heads' scores.
  std::vector<bool> choice(int64_t b, int64_t h, int64_t members, int64_t row) const {
    const int64_t cols = args_.scores.shape[3];
    std::vector<double> scores(static_cast<size_t>(cols));
    for (int64_t c = 0; c < cols; ++c) {
      for (int64_t member = 0; member < members; ++member)
        scores[c] += load_double(args_.scores, {b, h * members + member, row, c});
      // Rounded as the kernel's means are, so that equal ones are equal.
      if (members > 1) scores[c] = static_cast<float>(scores[c] / static_cast<double>(members));
    }
    const auto first = static_cast<int64_t>(load_double(args_.first, {b}));
    const auto blocks = static_cast<int64_t>(load_double(args_.blocks, {b}));
    const int64_t there = std::clamp<int64_t>(blocks, 0, cols);
    RowChoice of;
    of.visible = c_.causal ? std::clamp<int64_t>(first + row + 1, 0, there) : there;
    of.low_diagonal = of.diagonal = first + row;
    of.threshold = args_.thresholds ? load_double(*args_.thresholds, {h})
                   : by_mass(c_)    ? *args_.threshold
                                    : static_cast<double>(*args_.k);
    of.first_row = row == 0;
    of.first_chunk = first == 0 && row > 0 && (c_.ref_chunk == 0 || row < c_.ref_chunk);
    return choose_row(c_, scores, of);
  }

  const SelectConfig& c_;
  const SelectArgs& args_;
};

void check_amount(const SelectConfig& config, const SelectArgs& args, int64_t heads) {
  if (config.per_head) {
    const Memory& all = required("thresholds", args.thresholds);
    require_dtype("thresholds", all, by_mass(config) ? F32 : I32);
    require_shape("thresholds", all, {heads});
    return;
  }
  refuse("thresholds", args.thresholds, "without per_head");
  if (by_mass(config)) {
    require_threshold(args.threshold.value_or(kDefaultThreshold));
    return;
  }
  if (!args.k) throw UserError("k: missing");
  const int64_t forced = config.causal ? config.force_sink + config.force_diag : 0;
  if (*args.k < forced || *args.k > std::numeric_limits<int32_t>::max())
    throw UserError(fmt::format("k: expected {} (the forced blocks) to {}, got {}", forced,
                                std::numeric_limits<int32_t>::max(), *args.k));
}

}  // namespace

void require_threshold(float threshold) {
  if (!(threshold > 0 && threshold <= 1))
    throw UserError(fmt::format("threshold: expected above 0, at most 1, got {}", threshold));
}

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
  const Shape& shape = args.scores.shape;
  const int64_t batch = shape[0], heads = shape[1], rows = shape[2], cols = shape[3];
  for (auto [what, tensor] : {std::pair("first", &args.first), std::pair("blocks", &args.blocks)}) {
    require_dtype(what, *tensor, I32);
    require_shape(what, *tensor, {batch});
  }
  require_dtype("mask", args.mask, Bool);
  require_rank("mask", args.mask, 4, "batch, heads, rows, cols");
  const int64_t out_heads = reduces(config) ? args.mask.shape[1] : heads;
  require_shape("mask", args.mask, {batch, out_heads, rows, cols});
  if (out_heads == 0 ? heads != 0 : heads % out_heads != 0)
    throw UserError(fmt::format(
        "scores: expected heads that are a multiple of the mask's {}, got {}", out_heads, heads));
  if (config.list) {
    require_dtype("counts", required("counts", args.counts), I32);
    require_shape("counts", *args.counts, {batch, out_heads, rows});
    require_dtype("indices", required("indices", args.indices), I32);
    require_shape("indices", *args.indices, {batch, out_heads, rows, cols});
  } else {
    refuse("counts", args.counts, "without list");
    refuse("indices", args.indices, "without list");
  }
  check_amount(config, args, votes(config) ? heads : out_heads);
}

std::array<const Memory*, 7> SelectInterface::tensors(const Args& args) {
  return {&args.scores, &args.first,        &args.blocks,       given(args.thresholds),
          &args.mask,   given(args.counts), given(args.indices)};
}

CallScalars<1> SelectInterface::scalars(const Config& config, const Args& args) {
  if (config.per_head) return {{{}, 0}, {}};
  if (by_mass(config))
    return {{{Scalar::of_float(F32, args.threshold.value_or(kDefaultThreshold))}}, {}};
  return {{{Scalar::of_int(I32, *args.k)}}, {}};
}

Limits SelectInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch},
          {"heads", limits.heads},
          {"heads_kv", limits.heads},
          {"rows", limits.rows},
          {"cols", limits.cols}};
}

SelectBlocks select_blocks(Device& device, const SelectConfig& config) {
  return {device, validated(config)};
}

KernelEntry select_blocks_entry() {
  KernelEntry entry;
  entry.name = "select_blocks";
  entry.summary = "mask and lists of the blocks that a threshold of mass, or the k best, choose";
  entry.options = {
      {"by", "threshold", "threshold or top_k", "what the choice of a row follows"},
      {"causal", "true", "true or false", "a row sees the blocks up to its diagonal"},
      {"per_head", "false", "true or false", "thresholds (or ks) are a tensor, one a head"},
      {"reduce", "none", "none, mean, any or majority", "of the heads that share a kv head"},
      {"force_sink", "true", "true or false", "block 0 is chosen first"},
      {"force_diag", "true", "true or false", "the diagonal is chosen first"},
      {"keep_sink", "false", "true or false", "block 0 is added to the choice"},
      {"keep_recent", "false", "true or false", "the diagonal is added to the choice"},
      {"list", "true", "true or false", "also write counts and indices"},
      {"ref_compat", "false", "true or false", "choose as the public code of XAttention does"},
      {"ref_chunk", "0", "0 or more; 0: all", "rows that the public code looks at together"},
  };
  entry.shipped = {{}, {{"by", "top_k"}}};
  entry.build = [](const Options& options, std::string_view) {
    return select_blocks_kernel(config_of(options));
  };
  entry.default_params = [](const Options& options) {
    const SelectConfig config = config_of(options);
    std::map<std::string, Scalar> params;
    if (!config.per_head && by_mass(config))
      params["threshold"] = Scalar::of_float(F32, kDefaultThreshold);
    if (!config.per_head && !by_mass(config)) params["k"] = Scalar::of_int(I32, 16);
    return params;
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const SelectConfig config = config_of(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const SelectConfig config = config_of(options);
    return Reference(config, args_of(config, bindings)).results();
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
