// kiln attend: block-sparse or dense attention on .npy files.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "ir/error.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"
#include "tools/kiln/device_attention.h"
#include "tools/kiln/profile.h"
#include "tools/kiln/progress.h"
#include "tools/npy/npy.h"

namespace kiln::cli {
namespace {

struct AttendOptions {
  std::string q, k, v, mask, scores, out, lse;
  std::optional<int64_t> top_k;
  std::optional<double> threshold, scale;
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
  if (!options.mask.empty()) {
    files.mask = mask_from_file(options);
    files.args.mask = rank4("mask", options.mask, files.mask, files.rank);
    if (files.mask.dtype() == I8) config.form = BlockForm::MaskI8;
  } else if (!options.dense) {
    files.mask =
        mask_from_scores(options, files, grid_of(config, files.args), scale_of(config, files.args));
    files.args.mask = files.mask.view();
  }
  check(config, files.args);

  std::optional<BlockSparseAttention> kernel;
  {
    Progress progress("compiling");
    kernel = block_sparse_attention(where, config);
  }
  DeviceAttention arrays(where, files.args);
  auto start = std::chrono::steady_clock::now();
  {
    Progress progress("running");
    if (options.emulator.given())
      run_emulated(*kernel->executable(), kernel->bind(arrays.args()), options.emulator);
    else
      (*kernel)(arrays.args());
    where.synchronize();
  }
  double milliseconds = milliseconds_since(start);
  BlockCount blocks = attention_work(config, files.args).blocks;
  fmt::print(stderr, "note: {} of {} visible blocks ({:.1f} %), {:.3g} ms on {}\n", blocks.selected,
             blocks.visible, 100 * blocks.density(), milliseconds, where.name());
  arrays.download_results();
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
  kiln attend --q q.npy --k k.npy --v v.npy --mask m.npy --causal --out o.npy --lse l.npy)";

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
  which->require_option(1);
  CLI::Option* scores = command
                            ->add_option("--scores", options->scores,
                                         "score of each block, for --topk and --threshold")
                            ->type_name("FILE");
  scores->excludes("--mask")->excludes("--dense");
  command
      ->add_flag("--use-dense-for-last-block", options->dense_last,
                 "the last two block rows see everything (--topk, --threshold)")
      ->excludes("--mask")
      ->excludes("--dense");
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
