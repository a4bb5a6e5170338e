// kiln attend: block-sparse or dense attention on .npy files.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <optional>

#include "ir/error.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/xattention/prefill.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"
#include "tools/kiln/device_array.h"
#include "tools/kiln/device_attention.h"
#include "tools/kiln/profile.h"
#include "tools/kiln/progress.h"
#include "tools/npy/npy.h"

namespace kiln::cli {
namespace {

struct AttendOptions {
  std::string q, k, v, mask, scores, out, lse;
  std::optional<int64_t> top_k;
  std::optional<double> threshold, scale, xattention;
  int64_t stride = 8;
  bool dense = false, causal = false, dense_last = false;
  int64_t block = 64;
  DeviceChoice device;
  EmulatorChoice emulator;
};

// The array as rank 4: leading axes that the file lacks are 1.
Memory rank4(const char* argument, const std::string& path, Array& array, size_t rank) {
  if (array.shape().size() != rank)
    throw UserError(fmt::format("{}: {}: expected {} axes as q has, got shape {}", argument, path,
                                rank, str(array.shape())));
  Shape shape = array.shape();
  shape.insert(shape.begin(), 4 - rank, 1);
  return Memory::contiguous(array.data(), array.dtype(), shape);
}

struct Files {
  Array q, k, v, mask;
  size_t rank = 4;
  AttentionArgs args;  // host memory
};

Array load_float(const char* argument, const std::string& path) {
  Array array = read_npy(path);
  if (array.dtype() != F16 && array.dtype() != F32 && array.dtype() != BF16)
    throw UserError(fmt::format("{}: {}: expected float16 or float32 (or V2, bfloat16), got {}",
                                argument, path, name(array.dtype())),
                    "convert it with astype before numpy.save");
  return array;
}

Files load(const AttendOptions& options) {
  Progress progress("reading");
  Files files;
  files.q = load_float("q", options.q);
  files.k = load_float("k", options.k);
  files.v = load_float("v", options.v);
  files.rank = files.q.shape().size();
  if (files.rank < 2 || files.rank > 4)
    throw UserError(
        fmt::format("q: {}: expected [batch, heads, seq, dim], [heads, seq, dim] or "
                    "[seq, dim], got shape {}",
                    options.q, str(files.q.shape())));
  files.args.q = rank4("q", options.q, files.q, files.rank);
  files.args.k = rank4("k", options.k, files.k, files.rank);
  files.args.v = rank4("v", options.v, files.v, files.rank);
  if (options.scale) files.args.scale = static_cast<float>(*options.scale);
  return files;
}

Array mask_from_file(const AttendOptions& options) {
  Array mask = read_npy(options.mask);
  if (mask.dtype() == U8) return reinterpreted(mask, I8);
  if (mask.dtype() != Bool && mask.dtype() != I8)
    throw UserError(
        fmt::format("mask: {}: expected bool or int8, got {}", options.mask, name(mask.dtype())),
        "convert it with astype(bool) before numpy.save");
  return mask;
}

// Scores of a file, which must fit the grid: more columns would be chosen from.
Array scores_from_file(const AttendOptions& options, const Files& files, const BlockGrid& grid) {
  Array scores = read_npy(options.scores);
  if (!is_float(scores.dtype()))
    throw UserError(fmt::format("scores: {}: expected a float dtype, got {}", options.scores,
                                name(scores.dtype())));
  Memory shaped = rank4("scores", options.scores, scores, files.rank);
  Shape expected = {files.args.q.shape[0], files.args.q.shape[1], grid.rows(), grid.cols()};
  if (shaped.shape != expected)
    throw UserError(fmt::format("scores: {}: expected shape {}, got {}", options.scores,
                                str(expected), str(shaped.shape)));
  return Array(F64, expected, scores.values());
}

Array mask_from_scores(const AttendOptions& options, const Files& files, const BlockGrid& grid,
                       float scale) {
  Progress progress("choosing blocks");
  Array scores = options.scores.empty() ? pooled_scores(files.args.q, files.args.k, grid, scale)
                                        : scores_from_file(options, files, grid);
  Array mask = options.top_k ? top_k_mask(scores, *options.top_k)
                             : threshold_mask(scores, *options.threshold);
  if (options.dense_last) set_last_rows(mask);
  trim(mask, grid);
  return mask;
}

AttentionConfig config_for(const AttendOptions& options, const Files& files) {
  AttentionConfig config;
  config.dtype = files.q.dtype();
  config.head_dim = files.args.q.shape[3];
  config.head_dim_v = files.args.v.shape[3];
  config.block = options.block;
  config.form = options.dense ? BlockForm::Dense : BlockForm::MaskBool;
  config.causal = options.causal;
  config.lse = !options.lse.empty();
  return config;
}

void write(const std::string& path, Array& array, size_t rank_dropped) {
  Shape shape(array.shape().begin() + static_cast<int64_t>(rank_dropped), array.shape().end());
  Array shaped(array.dtype(), shape);
  std::memcpy(shaped.data(), array.data(), array.bytes());
  write_npy(path, shaped);
  fmt::print("{}: {} {}\n", path, name(shaped.dtype()), str(shape));
}

// Milliseconds of a call on arguments in the device's memory.
template <class Call, class Args>
double run_timed(const AttendOptions& options, Device& where, const Call& call, const Args& args) {
  Progress progress("running");
  const auto start = std::chrono::steady_clock::now();
  if (options.emulator.given())
    run_emulated(*call.executable(), call.bind(args), options.emulator);
  else
    call(args);
  where.synchronize();
  return milliseconds_since(start);
}

// Blocks chosen as the attention goes along; the density, from what it chose.
BlockCount attend_chosen(const AttendOptions& options, Device& where, const AttentionConfig& like,
                         const Files& files, double& milliseconds) {
  PrefillConfig config;
  config.dtype = like.dtype;
  config.head_dim = like.head_dim;
  config.head_dim_v = like.head_dim_v;
  config.stride = options.stride;
  config.block = options.block;
  config.causal = like.causal;
  config.lse = like.lse;
  config.choice = true;
  config.dense_below = 0;  // asked for
  const BlockGrid grid = grid_of(like, files.args);
  const Shape cells = {files.args.q.shape[0], files.args.q.shape[1], grid.rows(), grid.cols()};
  Array mask(Bool, cells), counts(I32, {cells[0], cells[1], cells[2]}), indices(I32, cells);
  PrefillArgs args{.q = files.args.q, .k = files.args.k, .v = files.args.v, .o = files.args.o};
  args.threshold = static_cast<float>(*options.xattention);
  args.scale = files.args.scale;
  args.lse = files.args.lse;
  args.mask = mask.view();
  args.counts = counts.view();
  args.indices = indices.view();
  config = validated(config, where.target());
  check(config, args);
  std::optional<XattentionPrefill> prefill;
  {
    Progress progress("compiling");
    prefill = xattention_prefill(where, config);
  }
  std::list<DeviceArray> arrays;
  PrefillArgs there = args;
  const auto copy = [&](Memory& memory) { memory = arrays.emplace_back(where, memory).memory(); };
  for (Memory* memory : {&there.q, &there.k, &there.v, &there.o}) copy(*memory);
  for (auto* memory : {&there.lse, &there.mask, &there.counts, &there.indices})
    if (*memory) copy(**memory);
  milliseconds = run_timed(options, where, *prefill, there);
  const auto fetch = [&](const Memory& host, const Memory& from) {
    where.download(host.data, from.data, bytes_of(host.dtype, host.shape));
  };
  fetch(args.o, there.o);
  if (args.lse) fetch(*args.lse, *there.lse);
  fetch(*args.mask, *there.mask);
  return count_blocks(mask.view(), grid);
}

// The mask that the options ask for, or none.
void choose_mask(const AttendOptions& options, Files& files, AttentionConfig& config) {
  if (!options.mask.empty()) {
    files.mask = mask_from_file(options);
    files.args.mask = rank4("mask", options.mask, files.mask, files.rank);
    if (files.mask.dtype() == I8) config.form = BlockForm::MaskI8;
  } else if (!options.dense) {
    files.mask =
        mask_from_scores(options, files, grid_of(config, files.args), scale_of(config, files.args));
    files.args.mask = files.mask.view();
  }
}

BlockCount attend_masked(const AttendOptions& options, Device& where, const AttentionConfig& config,
                         const Files& files, double& milliseconds) {
  check(config, files.args);
  std::optional<BlockSparseAttention> kernel;
  {
    Progress progress("compiling");
    kernel = block_sparse_attention(where, config);
  }
  DeviceAttention arrays(where, files.args);
  milliseconds = run_timed(options, where, *kernel, arrays.args());
  arrays.download_results();
  return attention_work(config, files.args).blocks;
}

void attend(const AttendOptions& options) {
  Device& where = chosen_device(options.device, options.emulator);
  NamedTexts outputs = {{"--out", options.out}};
  if (!options.lse.empty()) outputs["--lse"] = options.lse;
  check_output_paths(outputs);
  Files files = load(options);
  AttentionConfig config = config_for(options, files);
  Array o(config.dtype,
          {files.args.q.shape[0], files.args.q.shape[1], files.args.q.shape[2], config.dim_v()});
  Array lse(F32, {o.shape()[0], o.shape()[1], config.lse ? o.shape()[2] : 0});
  files.args.o = o.view();
  if (config.lse) files.args.lse = lse.view();
  config = validated(config, where.target());
  // What can be said about q, k and v comes before work on masks made from them.
  AttentionConfig unmasked = config;
  unmasked.form = BlockForm::Dense;
  check(unmasked, files.args);
  double milliseconds = 0;
  BlockCount blocks;
  if (options.xattention) {
    blocks = attend_chosen(options, where, unmasked, files, milliseconds);
  } else {
    choose_mask(options, files, config);
    blocks = attend_masked(options, where, config, files, milliseconds);
  }
  fmt::print(stderr, "note: {} of {} visible blocks ({:.1f} %), {:.3g} ms on {}\n", blocks.selected,
             blocks.visible, 100 * blocks.density(), milliseconds, where.name());
  Progress progress("writing");
  write(options.out, o, 4 - files.rank);
  if (config.lse) write(options.lse, lse, 4 - files.rank);
}

constexpr const char* kFooter =
    R"(Files are NumPy's, float16 or float32 (bfloat16 as V2), [batch, heads, seq, dim]; q, k and v may
all be [heads, seq, dim] or [seq, dim], then mask and scores lack the same axes. k and v may have
fewer heads (grouped queries) and another length than q; v may have another dim. Causal is
bottom-right: query i sees keys up to i + seq_kv - seq.
--topk keeps the N best-scored blocks of each row, --threshold those above T; --causal then drops
blocks in the future. Without --scores a block's score is its share, by softmax, of the dot products
of mean query and mean key.
--xattention chooses blocks of 64 or 128 (--block) from anti-diagonal scores.
  kiln attend --q q.npy --k k.npy --v v.npy --mask m.npy --causal --out o.npy --lse l.npy
  kiln attend --q q.npy --k k.npy --v v.npy --xattention 0.9 --causal --out o.npy)";

}  // namespace

void add_attend(CLI::App& app) {
  auto options = std::make_shared<AttendOptions>();
  CLI::App* command = app.add_subcommand("attend", "block-sparse or dense attention on .npy files");
  command->add_option("--q", options->q, "queries")->required()->type_name("FILE");
  command->add_option("--k", options->k, "keys")->required()->type_name("FILE");
  command->add_option("--v", options->v, "values")->required()->type_name("FILE");
  CLI::Option_group* which =
      command->add_option_group("Blocks", "which key blocks a query block sees");
  which->add_option("--mask", options->mask, "bool or int8, [batch, heads, rows, cols] of blocks")
      ->type_name("FILE");
  which->add_option("--topk", options->top_k, "the N best of each row")
      ->type_name("N")
      ->check(not_negative());
  which->add_option("--threshold", options->threshold, "those scored above T")->type_name("T");
  which->add_flag("--dense", options->dense, "all");
  which
      ->add_option("--xattention", options->xattention,
                   "those that XAttention's estimate finds to have T of the mass; 0.9")
      ->expected(0, 1)
      ->default_str("0.9")
      ->type_name("T");
  which->require_option(1);
  CLI::Option* scores = command
                            ->add_option("--scores", options->scores,
                                         "score of each block, for --topk and --threshold")
                            ->type_name("FILE");
  scores->excludes("--mask")->excludes("--dense")->excludes("--xattention");
  command
      ->add_flag("--use-dense-for-last-block", options->dense_last,
                 "the last two block rows see everything (--topk, --threshold)")
      ->excludes("--mask")
      ->excludes("--dense")
      ->excludes("--xattention");
  command
      ->add_option("--stride", options->stride,
                   "tokens of a cell of XAttention's estimate: 4, 8 or 16")
      ->default_str("8")
      ->needs("--xattention")
      ->type_name("S");
  command->add_option("--block", options->block, "edge of a block: 16 to 128, a multiple of 16")
      ->default_str("64")
      ->type_name("B");
  command->add_flag("--causal", options->causal, "no query sees later keys");
  command->add_option("--scale", options->scale,
                      "of q·k before the softmax; 1/sqrt(dim) if not given");
  command->add_option("--out", options->out, "where to write the result, in the dtype of q")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--lse", options->lse,
                   "where to write each row's log of the sum of exponentials, float32")
      ->type_name("FILE");
  add_device_options(*command, options->device);
  add_emulator_options(*command, options->emulator);
  command->footer(kFooter);
  command->callback([options] { attend(*options); });
}

}  // namespace kiln::cli
