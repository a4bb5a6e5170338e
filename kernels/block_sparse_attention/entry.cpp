#include "kernels/block_sparse_attention/entry.h"

#include <algorithm>
#include <cmath>

#include "ir/error.h"
#include "kernels/access.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"

namespace kiln {

static constexpr std::string_view kForms[] = {"mask", "mask_i8", "lists", "dense"};
static constexpr std::string_view kStreaming[] = {"none", "blocks", "tokens"};

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
  config.varlen = options.boolean("varlen");
  config.lengths = options.boolean("lengths");
  config.page = options.integer("page");
  config.q_start = options.boolean("q_start");
  config.head_types = options.boolean("head_types");
  config.per_kv_head = options.boolean("per_kv_head");
  config.streaming = static_cast<Streaming>(options.choice("streaming", kStreaming));
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

// Of sequences that cu_seqlens (host memory) says; the kernel itself asks for no such bound of
// keys.
int64_t longest(const Memory& cu_seqlens) {
  int64_t most = 0;
  const int64_t ends =
      cu_seqlens.dtype == I32 && cu_seqlens.shape.size() == 1 ? cu_seqlens.shape[0] : 0;
  for (int64_t b = 1; b < ends; ++b)
    most = std::max(most, static_cast<int64_t>(load_double(cu_seqlens, {b}) -
                                               load_double(cu_seqlens, {b - 1})));
  return most;
}

AttentionArgs args_of(const AttentionConfig& config, const Bindings& bindings) {
  const auto find = [&](const char* name) { return tensor_of(bindings, name); };
  AttentionArgs args{*find("q"),     *find("k"),      *find("v"),  *find("o"), find("mask"),
                     find("counts"), find("indices"), find("lse"), {}};
  args.scale = static_cast<float>(bindings.params.at("scale").f);
  args.cu_seqlens_q = find("cu_seqlens_q");
  args.cu_seqlens_k = find("cu_seqlens_k");
  args.lengths = find("lengths");
  args.table = find("table");
  args.q_start = find("q_start");
  args.head_mask_type = find("head_mask_type");
  args.streaming_info = find("streaming_info");
  if (config.varlen) args.max_seqlen_q = bindings.dims.at("seq");
  if (config.sequences().packed_keys()) args.max_seqlen_k = longest(*args.cu_seqlens_k);
  return args;
}

std::map<std::string, std::string> settings_of(const AttentionConfig& config) {
  return {{"dtype", std::string(name(config.dtype))},
          {"head_dim", std::to_string(config.head_dim)},
          {"head_dim_v", std::to_string(config.head_dim_v)},
          {"block", str(config.block)},
          {"form", std::string(kForms[static_cast<size_t>(config.form)])},
          {"causal", config.causal ? "true" : "false"},
          {"varlen", config.varlen ? "true" : "false"},
          {"page", std::to_string(config.page)},
          {"head_types", config.head_types ? "true" : "false"},
          {"streaming", std::string(kStreaming[static_cast<size_t>(config.streaming)])}};
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
      {"varlen", "false", "true or false", "sequences are packed, as cu_seqlens_q and _k say"},
      {"lengths", "false", "true or false", "keys are in a cache that holds `lengths` of them"},
      {"page", "0", "0 or a multiple of 16", "keys of a page of the cache; 0: not paged"},
      {"q_start", "false", "true or false", "first queries' positions are given, as q_start says"},
      {"head_types", "false", "true or false",
       "heads are dense, sparse or streaming, as head_mask_type says"},
      {"per_kv_head", "false", "true or false", "the mask or lists have a plane for each kv head"},
      {"streaming", "none", "none, blocks or tokens", "what a streaming head's window counts"},
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
    const AttentionConfig config = attention_config(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const AttentionConfig config = attention_config(options);
    return attention_results(config, args_of(config, bindings));
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const AttentionConfig config = attention_config(options);
    AttentionWork work = attention_work(config, args_of(config, bindings));
    return Work{work.flops, work.bytes};
  };
  return entry;
}

}  // namespace kiln
