#include "kernels/sparse_decode/entry.h"

#include <cmath>

namespace kiln {

// As DecodeForm.
static constexpr std::string_view kForms[] = {"indices", "mask", "mask_i8", "dense"};

DecodeConfig decode_config(const Options& options) {
  DecodeConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16});
  config.fp8_cache = options.boolean("fp8_cache");
  config.head_dim = options.integer("head_dim");
  config.head_dim_v = options.integer("head_dim_v");
  config.group = options.integer("group");
  config.tokens = options.integer("tokens");
  config.block = options.integer("block");
  config.page = options.integer("page");
  config.form = static_cast<DecodeForm>(options.choice("form", kForms));
  config.per_token = options.boolean("per_token");
  config.left_pad = options.boolean("left_pad");
  config.lse = options.boolean("lse");
  config.split = options.boolean("split");
  config.checked = options.boolean("checked");
  config.fast_math = options.boolean("fast_math");
  config.stages = options.integer("stages");
  config.threads = options.integer("threads");
  return validated(config);
}

namespace {

DecodeArgs args_of(const DecodeConfig& config, const Bindings& bindings) {
  const auto find = [&](const char* name) { return tensor_of(bindings, name); };
  DecodeArgs args{*find("q"),       *find("k"),      *find("v"),    *find("o"),
                  *find("lengths"), find("chosen"),  find("table"), find("starts"),
                  find("k_scale"),  find("v_scale"), find("lse")};
  args.scale = static_cast<float>(bindings.params.at("scale").f);
  if (config.split) args.splits = bindings.dims.at("splits");
  return args;
}

std::map<std::string, std::string> settings_of(const DecodeConfig& config) {
  return {{"dtype", std::string(name(config.dtype))},
          {"head_dim", std::to_string(config.head_dim)},
          {"head_dim_v", std::to_string(config.head_dim_v)},
          {"group", std::to_string(config.group)},
          {"block", std::to_string(config.block)},
          {"page", std::to_string(config.page)},
          {"form", std::string(kForms[static_cast<size_t>(config.form)])}};
}

std::vector<OptionInfo> options() {
  return {
      {"dtype", "f16", "f16 or bf16", "element type of q, k, v and o"},
      {"fp8_cache", "false", "true or false",
       "k and v are e4m3, to be multiplied by k_scale, v_scale"},
      {"head_dim", "128", "16 to 256, a multiple of 16", "head dimension of q and k"},
      {"head_dim_v", "0", "16 to 256, a multiple of 16; 0: as head_dim",
       "head dimension of v and o"},
      {"group", "4", "1 to 1024", "query heads that share a kv head"},
      {"tokens", "1", "1 to 8", "new tokens a sequence"},
      {"block", "64", "16 to 128, a multiple of 16", "keys of a block"},
      {"page", "0", "16 to 65536, a multiple of 16; 0: contiguous", "keys of a page"},
      {"form", "indices", "indices, mask, mask_i8 or dense", "how the read blocks are given"},
      {"per_token", "false", "true or false", "each token has a selection of its own"},
      {"left_pad", "false", "true or false", "keys before starts[b] are padding"},
      {"lse", "false", "true or false", "also write lse, the log of the sum of exponentials"},
      {"split", "true", "true or false", "merge splits by a second launch"},
      {"checked", "false", "true or false", "look at lengths and page tables as the kernel runs"},
      {"fast_math", "true", "true or false", "allow fused and approximate arithmetic"},
      {"stages", "0", "0 to 8; 0: chosen", "tiles of keys prefetched"},
      {"threads", "0", "0 to 1024, a multiple of 32; 0: chosen", "threads of a block on a GPU"},
  };
}

}  // namespace

KernelEntry sparse_decode_entry() {
  KernelEntry entry;
  entry.name = "sparse_decode";
  entry.summary = "new tokens against selected blocks of a contiguous or paged cache";
  entry.options = options();
  entry.shipped.clear();
  for (const DecodeConfig& config : shipped_decode_configs())
    entry.shipped.push_back(settings_of(config));
  entry.build = [](const Options& options, std::string_view) {
    return sparse_decode_kernel(decode_config(options));
  };
  entry.default_params = [](const Options& options) {
    const DecodeConfig config = decode_config(options);
    const double scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
    std::map<std::string, Scalar> params{{"scale", Scalar::of_float(F32, scale)}};
    if (config.split) params["quota"] = Scalar::of_int(I32, 1);
    return params;
  };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const DecodeConfig config = decode_config(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const DecodeConfig config = decode_config(options);
    DecodeReference reference = decode_reference(config, args_of(config, bindings));
    ReferenceResults results{{"o", std::move(reference.o)}};
    if (config.lse) results["lse"] = std::move(reference.lse);
    return results;
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const DecodeConfig config = decode_config(options);
    const DecodeWork work = decode_work(config, args_of(config, bindings));
    return Work{work.flops, work.bytes};
  };
  return entry;
}

}  // namespace kiln
