#include "kernels/block_sparse_attention/entry.h"

#include <cmath>

#include "ir/error.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"

namespace kiln {

static constexpr std::string_view kForms[] = {"mask", "mask_i8", "lists", "dense"};

AttentionConfig attention_config(const Options& options) {
  AttentionConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16, F32});
  config.head_dim = options.integer("head_dim");
  config.head_dim_v = options.integer("head_dim_v");
  config.block = block_shape("block", options.text("block"));
  config.form = static_cast<BlockForm>(options.choice("form", kForms));
  config.causal = options.boolean("causal");
  config.lse = options.boolean("lse");
  config.written_out = options.boolean("written_out");
  config.fast_math = options.boolean("fast_math");
  config.checked = options.boolean("checked");
  config.block_m = options.integer("block_m");
  config.block_n = options.integer("block_n");
  config.stages = options.integer("stages");
  config.threads = options.integer("threads");
  config.schedule =
      static_cast<Schedule>(options.choice("schedule", {"auto", "serial", "overlap"}));
  validated(config);  // for its errors; tiles that are not given are chosen for the device
  return config;
}

namespace {

AttentionArgs args_of(const Bindings& bindings) {
  auto find = [&](const char* name) -> std::optional<Memory> {
    auto it = bindings.tensors.find(name);
    return it == bindings.tensors.end() ? std::nullopt : std::optional(it->second);
  };
  AttentionArgs args{*find("q"),     *find("k"),      *find("v"),  *find("o"), find("mask"),
                     find("counts"), find("indices"), find("lse"), {}};
  args.scale = static_cast<float>(bindings.params.at("scale").f);
  return args;
}

std::map<std::string, std::string> settings_of(const AttentionConfig& config) {
  return {{"dtype", std::string(name(config.dtype))},
          {"head_dim", std::to_string(config.head_dim)},
          {"head_dim_v", std::to_string(config.head_dim_v)},
          {"block", str(config.block)},
          {"form", std::string(kForms[static_cast<size_t>(config.form)])},
          {"causal", config.causal ? "true" : "false"}};
}

std::vector<OptionInfo> options() {
  return {
      {"dtype", "f16", "f16, bf16 or f32", "element type of q, k, v and o"},
      {"head_dim", "128", "16 to 256, a multiple of 16", "head dimension of q and k"},
      {"head_dim_v", "0", "16 to 256, a multiple of 16; 0: as head_dim",
       "head dimension of v and o"},
      {"block", "64", "16 to 128, a multiple of 16; or two, 64x128",
       "queries and keys of a block of the mask or lists"},
      {"form", "mask", "mask, mask_i8, lists or dense", "how the selected blocks are given"},
      {"causal", "false", "true or false", "bottom-right causal mask inside the blocks"},
      {"lse", "false", "true or false",
       "also write lse, the log of each row's sum of exponentials"},
      {"written_out", "false", "true or false", "spell the softmax with reduce and exp"},
      {"fast_math", "true", "true or false", "allow fused and approximate arithmetic"},
      {"checked", "false", "true or false", "also check the entries of lists, on the device"},
      {"block_m", "0", "a divisor of the block's queries, a multiple of 16; 0: chosen",
       "queries computed together"},
      {"block_n", "0", "a divisor of the block's keys, a multiple of 16; 0: chosen",
       "keys computed together"},
      {"stages", "-1", "0 to 8; -1: chosen", "tiles of keys prefetched"},
      {"threads", "0", "0 to 1024, a multiple of 32; 0: chosen", "threads of a block on a GPU"},
      {"schedule", "auto", "auto, serial or overlap", "scores of a block computed ahead"},
  };
}

}  // namespace

KernelEntry block_sparse_attention_entry() {
  KernelEntry entry;
  entry.name = "block_sparse_attention";
  entry.summary = "attention over the key blocks that a mask or lists select; dense without one";
  entry.options = options();
  entry.shipped.clear();
  for (const AttentionConfig& config : shipped_attention_configs())
    entry.shipped.push_back(settings_of(config));
  entry.build = [](const Options& options, std::string_view target) {
    return block_sparse_attention_kernel(validated(attention_config(options), target));
  };
  entry.default_params = [](const Options& options) {
    double scale = 1 / std::sqrt(static_cast<double>(attention_config(options).head_dim));
    return std::map<std::string, Scalar>{{"scale", Scalar::of_float(F32, scale)}};
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    check(attention_config(options), args_of(bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    AttentionConfig config = attention_config(options);
    AttentionArgs args = args_of(bindings);
    AttentionReference reference = attention_reference(config, args, all_rows(args));
    ReferenceResults results{{"o", std::move(reference.o)}};
    if (config.lse) results["lse"] = std::move(reference.lse);
    return results;
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    AttentionWork work = attention_work(attention_config(options), args_of(bindings));
    return Work{work.flops, work.bytes};
  };
  return entry;
}

}  // namespace kiln
