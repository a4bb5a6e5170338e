// xattention_prefill by name.
#include <cmath>

#include "kernels/xattention/prefill.h"

namespace kiln {
namespace {

PrefillConfig config_of(const Options& options) {
  const AntidiagConfig cells = cell_config(options);
  PrefillConfig config;
  config.dtype = cells.dtype;
  config.head_dim = cells.head_dim;
  config.head_dim_v = options.integer("head_dim_v");
  config.stride = cells.stride;
  config.block = options.integer("block");
  config.causal = cells.causal;
  config.lse = options.boolean("lse");
  config.choice = options.boolean("choice");
  config.varlen = cells.varlen;
  config.lengths = cells.lengths;
  config.page = cells.page;
  config.q_start = cells.q_start;
  config.checked = cells.checked;
  config.fast_math = options.boolean("fast_math");
  config.dense_below = options.integer("dense_below");
  config.chunk = options.integer("chunk");
  config.select = select_config(options);
  config.block_m = options.integer("block_m");
  config.block_n = options.integer("block_n");
  config.stages = options.integer("stages");
  config.threads = options.integer("threads");
  config.schedule =
      static_cast<Schedule>(options.choice("schedule", {"auto", "serial", "overlap"}));
  validated(config);  // for its errors; tiles that are not given are chosen for the device
  return config;
}

PrefillArgs args_of(const PrefillConfig& config, const Bindings& bindings) {
  const auto find = [&](const char* name) { return tensor_of(bindings, name); };
  const CellArgs cells = cell_args(config.estimate().cells(), bindings);
  PrefillArgs args{.q = cells.q, .k = cells.k, .v = *find("v"), .o = *find("o")};
  args.thresholds = find("thresholds");
  args.lse = find("lse");
  args.mask = find("mask");
  args.counts = find("counts");
  args.indices = find("indices");
  take_sequences(cells, args);
  const auto& params = bindings.params;
  if (params.contains("threshold")) args.threshold = static_cast<float>(params.at("threshold").f);
  if (params.contains("top_k")) args.top_k = params.at("top_k").i;
  args.scale = static_cast<float>(params.at("scale").f);
  const double plain =
      1 / (std::sqrt(static_cast<double>(config.head_dim)) * static_cast<double>(config.stride));
  args.norm = static_cast<float>(plain / params.at("cell_scale").f);
  return args;
}

}  // namespace

KernelEntry xattention_prefill_entry() {
  KernelEntry entry;
  entry.name = "xattention_prefill";
  entry.summary = "attention on the blocks that anti-diagonal scores choose, after XAttention";
  entry.options = cell_options();
  for (OptionInfo option : std::initializer_list<OptionInfo>{
           {"head_dim_v", "0", "16 to 256, a multiple of 16; 0: as head_dim",
            "head dimension of v and o"},
           {"block", "128", "64 or 128", "tokens of a block"},
           {"lse", "false", "true or false",
            "also write lse, the log of each row's sum of exponentials"},
           {"choice", "false", "true or false", "also give mask, counts and indices"},
           {"fast_math", "true", "true or false", "allow fused and approximate arithmetic"},
           {"dense_below", std::to_string(PrefillConfig::kDenseBelow), "0 or more keys",
            "shorter sequences are not estimated: they are dense"},
           {"chunk", "16384", "2048 to 131072",
            "queries that the public code looks at together; of ref_compat alone"},
           {"block_m", "0", "a divisor of the block, a multiple of 16; 0: chosen",
            "queries computed together"},
           {"block_n", "0", "a divisor of the block, a multiple of 16; 0: chosen",
            "keys computed together"},
           {"stages", "-1", "0 to 8; -1: chosen", "tiles of keys prefetched"},
           {"threads", "0", "0 to 1024, a multiple of 32; 0: chosen",
            "threads of a block on a GPU"},
           {"schedule", "auto", "auto, serial or overlap", "scores of a block computed ahead"}})
    entry.options.push_back(std::move(option));
  for (OptionInfo& option : select_options()) entry.options.push_back(std::move(option));
  entry.shipped = {{}, {{"dtype", "bf16"}}, {{"varlen", "true"}, {"page", "64"}}};
  entry.build = [](const Options& options, std::string_view target) {
    return xattention_prefill_kernel(validated(config_of(options), target));
  };
  entry.default_params = [](const Options& options) {
    const PrefillConfig config = config_of(options);
    std::map<std::string, Scalar> params = default_amount(config.select);
    const double scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
    params["scale"] = Scalar::of_float(F32, scale);
    params["cell_scale"] = Scalar::of_float(F32, scale / static_cast<double>(config.stride));
    return params;
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const PrefillConfig config = config_of(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const PrefillConfig config = config_of(options);
    return prefill_reference(config, args_of(config, bindings));
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const PrefillConfig config = config_of(options);
    const PrefillArgs args = args_of(config, bindings);
    const BatchSizes sizes = batch_sizes(config.sequences(), sequence_tensors(args));
    // Every score of cells twice, half of them if causal; of the attention what is the least: the
    // diagonal blocks.
    const double pairs = static_cast<double>(sizes.batch * sizes.heads) *
                         static_cast<double>(sizes.seq) * static_cast<double>(sizes.seq_kv);
    const double per_stride =
        static_cast<double>(config.head_dim) / static_cast<double>(config.stride);
    double bytes = 0;
    for (const Memory* tensor : {&args.q, &args.k, &args.v, &args.o}) bytes += bytes_of(*tensor);
    return Work{2 * 2 * pairs * per_stride * (config.causal ? 0.5 : 1), bytes};
  };
  return entry;
}

}  // namespace kiln
