#include <fmt/format.h>

#include "ir/error.h"
#include "kernels/antidiag_scores/antidiag_scores.h"
#include "kernels/argument_checks.h"

namespace kiln {
namespace {

void require_dtype(const char* field, DType dtype, bool f32_too) {
  if (dtype != F16 && dtype != BF16 && !(f32_too && dtype == F32))
    throw UserError(fmt::format("{}: expected f16{} or {}, got {}", field, f32_too ? ", bf16" : "",
                                f32_too ? "f32" : "bf16", name(dtype)));
}

int64_t cells(int64_t tokens, const AntidiagConfig& config) {
  return (tokens + config.stride - 1) / config.stride;
}

AntidiagConfig config_of(const Options& options) {
  AntidiagConfig config = cell_config(options);
  config.out = options.dtype("out", {F16, BF16, F32});
  return validated(config);
}

AntidiagArgs args_of(const AntidiagConfig& config, const Bindings& bindings) {
  return {cell_args(config, bindings), bindings.tensors.at("scores")};
}

std::vector<double> reference(const AntidiagConfig& config, const AntidiagArgs& args) {
  const Shape& shape = args.scores.shape;
  std::vector<double> scores;
  for (int64_t b = 0; b < shape[0]; ++b) {
    const CellReference sequence(config, args, b);
    for (int64_t h = 0; h < shape[1]; ++h)
      for (int64_t row = 0; row < shape[2]; ++row)
        for (int64_t col = 0; col < shape[3]; ++col) scores.push_back(sequence.score(h, row, col));
  }
  return scores;
}

}  // namespace

AntidiagConfig validated(AntidiagConfig config) {
  require_dtype("dtype", config.dtype, false);
  require_dtype("out", config.out, true);
  if (config.head_dim < 16 || config.head_dim > 256 || config.head_dim % 16 != 0)
    throw UserError(
        fmt::format("head_dim: expected 16 to 256, a multiple of 16, got {}", config.head_dim));
  if (config.stride != 4 && config.stride != 8 && config.stride != 16)
    throw UserError(fmt::format("stride: expected 4, 8 or 16, got {}", config.stride));
  check_page(config.page);
  if (config.page) config.lengths = true;
  return config;
}

void check(const AntidiagConfig& config, const CellArgs& args) {
  kiln::require_dtype("q", args.q, config.dtype);
  kiln::require_dtype("k", args.k, config.dtype);
  check_sequences(config.sequences(), sequence_tensors(args), config.head_dim);
}

void check(const AntidiagConfig& config, const AntidiagArgs& args) {
  check(config, static_cast<const CellArgs&>(args));
  const BatchSizes sizes = sizes_of(config, args);
  kiln::require_dtype("scores", args.scores, config.out);
  require_shape("scores", args.scores,
                {sizes.batch, sizes.heads, cells(sizes.seq, config), cells(sizes.seq_kv, config)});
}

BatchSizes sizes_of(const AntidiagConfig& config, const CellArgs& args) {
  return batch_sizes(config.sequences(), sequence_tensors(args));
}

std::array<const Memory*, 8> AntidiagInterface::tensors(const Args& args) {
  return {&args.q,
          &args.k,
          given(args.cu_seqlens_q),
          given(args.cu_seqlens_k),
          given(args.q_start),
          given(args.lengths),
          given(args.table),
          &args.scores};
}

CallScalars<0, 2> AntidiagInterface::scalars(const Config& config, const Args& args) {
  return {{}, longest_sequences(config.sequences(), sequence_tensors(args))};
}

Limits AntidiagInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch},
          {"ends", limits.batch + 1},
          {"heads", limits.heads},
          {"seq", limits.seq},
          {"seq_kv", limits.seq_kv}};
}

AntidiagScores antidiag_scores(Device& device, const AntidiagConfig& config) {
  return {device, validated(config)};
}

std::vector<OptionInfo> cell_options() {
  return {
      {"dtype", "f16", "f16 or bf16", "element type of q and k"},
      {"head_dim", "128", "16 to 256, a multiple of 16", "head dimension"},
      {"stride", "8", "4, 8 or 16", "queries and keys of a cell"},
      {"causal", "true", "true or false", "a query sees keys up to its own position"},
      {"varlen", "false", "true or false", "sequences are packed, as cu_seqlens_q and _k say"},
      {"lengths", "false", "true or false", "keys are in a cache that holds `lengths` of them"},
      {"page", "0", "0 or a multiple of 16", "keys of a page of the cache; 0: not paged"},
      {"q_start", "false", "true or false", "first queries' positions are given, as q_start says"},
      {"checked", "false", "true or false", "look at lengths and starts as the kernel runs"},
  };
}

AntidiagConfig cell_config(const Options& options) {
  AntidiagConfig config;
  config.dtype = options.dtype("dtype", {F16, BF16});
  config.head_dim = options.integer("head_dim");
  config.stride = options.integer("stride");
  config.causal = options.boolean("causal");
  config.varlen = options.boolean("varlen");
  config.lengths = options.boolean("lengths");
  config.page = options.integer("page");
  if (config.page) config.lengths = true;
  config.q_start = options.boolean("q_start");
  config.checked = options.boolean("checked");
  return config;
}

CellArgs cell_args(const AntidiagConfig& config, const Bindings& bindings) {
  const auto find = [&](const char* name) { return tensor_of(bindings, name); };
  CellArgs args{*find("q"),      *find("k"),      find("cu_seqlens_q"), find("cu_seqlens_k"),
                find("q_start"), find("lengths"), find("table")};
  if (config.varlen) args.max_seqlen_q = bindings.dims.at("seq");
  if (config.varlen || config.lengths) args.max_seqlen_k = bindings.dims.at("seq_kv");
  return args;
}

KernelEntry antidiag_scores_entry() {
  KernelEntry entry;
  entry.name = "antidiag_scores";
  entry.summary = "anti-diagonal sums of q·k in cells of stride x stride, after XAttention";
  entry.options = cell_options();
  entry.options.push_back({"out", "f16", "f16, bf16 or f32", "element type of the scores"});
  entry.shipped = {{}, {{"dtype", "bf16"}, {"out", "bf16"}}, {{"head_dim", "64"}}};
  entry.build = [](const Options& options, std::string_view) {
    return antidiag_scores_kernel(config_of(options));
  };
  entry.default_params = [](const Options&) { return std::map<std::string, Scalar>(); };
  entry.check = [](const Options& options, const Bindings& bindings) {
    const AntidiagConfig config = config_of(options);
    check(config, args_of(config, bindings));
  };
  entry.reference = [](const Options& options, const Bindings& bindings) {
    const AntidiagConfig config = config_of(options);
    return ReferenceResults{{"scores", reference(config, args_of(config, bindings))}};
  };
  entry.work = [](const Options& options, const Bindings& bindings) {
    const AntidiagConfig config = config_of(options);
    const Memory& scores = bindings.tensors.at("scores");
    const double tokens_of_a_cell = static_cast<double>(config.head_dim * config.stride);
    return Work{
        2 * tokens_of_a_cell * static_cast<double>(count(scores.shape)),
        bytes_of(bindings.tensors.at("q")) + bytes_of(bindings.tensors.at("k")) + bytes_of(scores)};
  };
  return entry;
}

}  // namespace kiln
