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

double bytes_of(const Memory& memory) {
  return static_cast<double>(count(memory.shape)) * static_cast<double>(size_of(memory.dtype));
}

}  // namespace

AntidiagConfig validated(const AntidiagConfig& config) {
  require_dtype("dtype", config.dtype, false);
  require_dtype("out", config.out, true);
  if (config.head_dim < 16 || config.head_dim > 256 || config.head_dim % 16 != 0)
    throw UserError(
        fmt::format("head_dim: expected 16 to 256, a multiple of 16, got {}", config.head_dim));
  if (config.stride != 4 && config.stride != 8 && config.stride != 16)
    throw UserError(fmt::format("stride: expected 4, 8 or 16, got {}", config.stride));
  return config;
}

void check(const AntidiagConfig& config, const CellArgs& args) {
  const size_t rank = config.varlen ? 3 : 4;
  for (auto [what, tensor] : {std::pair("q", &args.q), std::pair("k", &args.k)}) {
    kiln::require_dtype(what, *tensor, config.dtype);
    require_rank(what, *tensor, rank,
                 config.varlen ? "tokens, heads, head_dim" : "batch, heads, seq, head_dim");
    if (tensor->shape.back() != config.head_dim)
      throw UserError(fmt::format("{}: expected head_dim {}, got {}", what, config.head_dim,
                                  tensor->shape.back()));
  }
  const auto lengths = [&](const char* what, const std::optional<Memory>& cu_seqlens,
                           const char* longest, const std::optional<int64_t>& most) {
    if (!config.varlen) {
      refuse(what, cu_seqlens, "without varlen");
      if (most)
        throw UserError(
            fmt::format("{}: given, but the kernel was compiled without varlen", longest));
      return;
    }
    kiln::require_dtype(what, required(what, cu_seqlens), I32);
    require_rank(what, *cu_seqlens, 1, "batch + 1");
    if (cu_seqlens->shape[0] < 1)
      throw UserError(fmt::format("{}: expected 1 entry or more, got none", what));
    if (!most || *most < 0)
      throw UserError(fmt::format("{}: expected the longest sequence's tokens, got {}", longest,
                                  most ? std::to_string(*most) : "nothing"));
  };
  lengths("cu_seqlens_q", args.cu_seqlens_q, "max_seqlen_q", args.max_seqlen_q);
  lengths("cu_seqlens_k", args.cu_seqlens_k, "max_seqlen_k", args.max_seqlen_k);
  const CellSizes sizes = sizes_of(config, args);
  if (config.varlen)
    require_shape("cu_seqlens_k", *args.cu_seqlens_k, {sizes.batch + 1});
  else if (args.k.shape[0] != sizes.batch)
    throw UserError(
        fmt::format("k: expected batch {}, as q has, got {}", sizes.batch, args.k.shape[0]));
  if (sizes.heads_kv == 0 ? sizes.heads != 0 : sizes.heads % sizes.heads_kv != 0)
    throw UserError(fmt::format("q: expected heads that are a multiple of heads_kv {}, got {}",
                                sizes.heads_kv, sizes.heads));
  if (!config.q_start) return refuse("q_start", args.q_start, "without q_start");
  kiln::require_dtype("q_start", required("q_start", args.q_start), I32);
  require_shape("q_start", *args.q_start, {sizes.batch});
}

void check(const AntidiagConfig& config, const AntidiagArgs& args) {
  check(config, static_cast<const CellArgs&>(args));
  const CellSizes sizes = sizes_of(config, args);
  kiln::require_dtype("scores", args.scores, config.out);
  require_shape("scores", args.scores,
                {sizes.batch, sizes.heads, cells(sizes.seq, config), cells(sizes.seq_kv, config)});
}

CellSizes sizes_of(const AntidiagConfig& config, const CellArgs& args) {
  const Shape &q = args.q.shape, &k = args.k.shape;
  if (config.varlen)
    return {args.cu_seqlens_q->shape[0] - 1, q[1], k[1], *args.max_seqlen_q, *args.max_seqlen_k};
  return {q[0], q[1], k[1], q[2], k[2]};
}

std::array<const Memory*, 6> AntidiagInterface::tensors(const Args& args) {
  return {
      &args.q,     &args.k, given(args.cu_seqlens_q), given(args.cu_seqlens_k), given(args.q_start),
      &args.scores};
}

CallScalars<0, 2> AntidiagInterface::scalars(const Config& config, const Args& args) {
  if (!config.varlen) return {{}, {{}, 0}};
  return {{}, {{*args.max_seqlen_q, *args.max_seqlen_k}}};
}

Limits AntidiagInterface::dims(const Limits& limits) {
  return {{"batch", limits.batch},
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
  config.q_start = options.boolean("q_start");
  config.checked = options.boolean("checked");
  return config;
}

CellArgs cell_args(const AntidiagConfig& config, const Bindings& bindings) {
  const auto find = [&](const char* name) -> std::optional<Memory> {
    auto it = bindings.tensors.find(name);
    return it == bindings.tensors.end() ? std::nullopt : std::optional(it->second);
  };
  CellArgs args{*find("q"), *find("k"), find("cu_seqlens_q"), find("cu_seqlens_k"),
                find("q_start")};
  if (config.varlen) {
    args.max_seqlen_q = bindings.dims.at("seq");
    args.max_seqlen_k = bindings.dims.at("seq_kv");
  }
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
