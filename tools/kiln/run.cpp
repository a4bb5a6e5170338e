// kiln run: measures block-sparse attention or sparse decode on random inputs, or runs a .tile file
// on files.
#include <fmt/format.h>

#include <memory>

#include "ir/error.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/execute.h"
#include "tools/kiln/measure.h"
#include "tools/kiln/measure_decode.h"
#include "tools/kiln/measure_xattention.h"

namespace kiln::cli {
namespace {

struct RunOptions {
  std::string target;
  MeasureOptions measure;
  std::vector<std::string> set, in, out;
  DeviceChoice device;
  EmulatorChoice emulator;
};

void run_tile(const RunOptions& options) {
  Kernel kernel = load_tile(options.target);
  Signature signature(std::make_shared<const Kernel>(kernel));
  Arguments arguments;
  add_launch_settings(signature, named("--set", options.set), arguments);
  run_on_files(kernel,
               {named("--in", options.in), named("--out", options.out),
                chosen_device(options.device, options.emulator), options.emulator},
               arguments);
}

void run(const RunOptions& options, const CLI::Option_group& problem,
         const CLI::Option_group& files) {
  if (options.target.empty()) throw CLI::RequiredError("target");
  if (is_tile_file(options.target)) {
    if (problem.count_all() > 0)
      throw UserError(
          fmt::format("{}: a .tile file takes its inputs from --in NAME=FILE.npy", options.target),
          "the options that describe an attention problem belong to kiln run "
          "block_sparse_attention");
    run_tile(options);
    return;
  }
  const std::string& name = kernel_named(underscored(options.target)).name;
  if (name != "block_sparse_attention")
    throw UserError(
        fmt::format(
            "{}: kiln run makes inputs for block_sparse_attention, sparse_decode and xattention "
            "only",
            name),
        fmt::format("kiln call {} --in …", name));
  if (files.count_all() > 0)
    throw UserError("--in, --out: kiln run makes its own inputs",
                    "kiln call or kiln attend run on files");
  MeasureOptions measure = options.measure;
  measure.device = &chosen_device(options.device, options.emulator);
  measure.emulator = options.emulator;
  measure.settings = named("--set", options.set);
  measure_attention(measure);
}

// Adds the options of a problem to a command or group.
struct ProblemOptions {
  CLI::App& to;

  void size(const char* name, int64_t& value, const char* doc) const {
    to.add_option(name, value, doc)->type_name("N")->capture_default_str()->check(not_negative());
  }
  void derived(const char* name, std::optional<int64_t>& value, const char* doc) const {
    to.add_option(name, value, doc)->type_name("N")->check(not_negative());
  }
  CLI::Option* word(const char* name, std::string& value, const char* doc,
                    std::vector<std::string> words) const {
    return to.add_option(name, value, doc)
        ->type_name("WORD")
        ->transform(CLI::IsMember(std::move(words), underscored).description(""));
  }
};

void add_problem(CLI::Option_group& group, MeasureOptions& measure) {
  const ProblemOptions problem{group};
  problem.size("--batch", measure.batch, "batch entries");
  problem.size("--heads", measure.heads, "query heads");
  problem.derived("--heads-kv", measure.heads_kv,
                  "key heads, a divisor of heads; as heads if not given");
  problem.size("--seq", measure.seq, "queries");
  problem.derived("--seq-kv", measure.seq_kv, "keys; as seq if not given");
  problem.size("--dim", measure.dim, "head dimension");
  problem.derived("--dim-v", measure.dim_v, "head dimension of v; as dim if not given");
  problem.size("--block", measure.block, "edge of a block: 16 to 128, a multiple of 16");
  problem.word("--dtype", measure.dtype, "f16, bf16 or f32", {"f16", "bf16", "f32"})
      ->capture_default_str();
  group.add_flag("--causal", measure.causal, "no query sees later keys (bottom-right)");
  group.add_option("--scale", measure.scale, "of q·k before the softmax; 1/sqrt(dim) if not given");
  CLI::Option_group* which =
      group.add_option_group("Blocks", "which key blocks a query block sees; all if not given");
  which->add_option("--topk", measure.top_k, "the N best of random scores in each row")
      ->type_name("N")
      ->check(not_negative());
  which->add_option("--threshold", measure.threshold, "random (normal) scores above T")
      ->type_name("T");
  which
      ->add_option("--density", measure.density,
                   "this fraction of the visible blocks at random, the diagonal always")
      ->type_name("F")
      ->check(CLI::Range(0.0, 1.0).description(""));
  which->require_option(0, 1);
  group.add_flag("--force-first", measure.force_first,
                 "adds 100 to the scores of block column 0 (--topk, --threshold)");
  group.add_flag("--use-dense-for-last-block", measure.dense_last,
                 "the last two block rows see everything (--topk, --threshold)");
  problem
      .word("--form", measure.form, "how the kernel is told the blocks: mask, mask_i8 or lists",
            {"mask", "mask_i8", "lists"})
      ->default_str("mask");
  group.add_option("--seed", measure.seed, "of the random inputs")->capture_default_str();
  group.add_flag("--check", measure.check,
                 "compare with float64; rows are sampled if there are many");
  group.add_flag("--compare-dense", measure.compare_dense, "also time dense attention");
}

struct DecodeRun {
  DecodeOptions decode;
  std::vector<std::string> set;
  DeviceChoice device;
};

void add_decode_problem(CLI::App& command, DecodeOptions& decode) {
  const ProblemOptions problem{command};
  problem.size("--batch", decode.batch, "sequences");
  problem.size("--heads", decode.heads, "query heads");
  problem.size("--heads-kv", decode.heads_kv, "kv heads, a divisor of heads");
  problem.size("--max-cache-seqlen", decode.max_cache_seqlen,
               "keys of the longest sequence; lengths are uniform from 1 on");
  problem.size("--dim", decode.dim, "head dimension");
  problem.size("--dim-v", decode.dim_v, "head dimension of v");
  command
      .add_option("--sparse-ratio", decode.sparse_ratio,
                  "this fraction of the blocks is not read; 0.8, or 0 if paged")
      ->type_name("F")
      ->check(CLI::Range(0.0, 1.0).description(""));
  problem.derived("--block-size", decode.block_size, "keys of a block; 32, or 64 if paged");
  problem
      .word("--form", decode.form,
            "the cache and selection: indices, mask, or paged (with indices)",
            {"indices", "mask", "paged"})
      ->capture_default_str();
  problem.derived("--page-block-size", decode.page_block_size, "keys of a page; 256");
  problem.derived("--num-pages", decode.num_pages, "pages of the cache; 1024");
  problem.derived("--splits", decode.splits, "at most so many a sequence; chosen if not given");
  command.add_flag("--batch-invariant", decode.batch_invariant,
                   "splits follow from each sequence alone");
  problem.word("--dtype", decode.dtype, "f16 or bf16", {"f16", "bf16"})->capture_default_str();
  command.add_option("--seed", decode.seed, "of the random inputs")->capture_default_str();
}

// A command of its own: its problem has other sizes.
void add_decode(CLI::App& run) {
  auto options = std::make_shared<DecodeRun>();
  CLI::App* command = run.add_subcommand(
      "sparse_decode", "measure decode over selected blocks beside dense, and check it");
  command->alias("sparse-decode");
  add_decode_problem(*command, options->decode);
  command->add_option("--set", options->set, "an option of the kernel")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  add_device_options(*command, options->device);
  add_emulator_options(*command, options->decode.emulator);
  add_without_option(*command);
  command->footer("--set gives the kernel's remaining options (`kiln list`).");
  command->callback([options] {
    DecodeOptions decode = options->decode;
    decode.device = &chosen_device(options->device, decode.emulator);
    decode.settings = named("--set", options->set);
    measure_decode(decode);
  });
}

struct XattentionRun {
  XattentionOptions xattention;
  DeviceChoice device;
};

void add_xattention(CLI::App& run) {
  auto options = std::make_shared<XattentionRun>();
  XattentionOptions& x = options->xattention;
  CLI::App* command = run.add_subcommand(
      "xattention", "measure XAttention's prefill by phases beside dense attention, and check it");
  const ProblemOptions problem{*command};
  problem.size("--batch", x.batch, "batch entries");
  problem.size("--heads", x.heads, "query heads");
  problem.derived("--heads-kv", x.heads_kv, "key heads, a divisor of heads; as heads if not given");
  problem.size("--seq", x.seq, "queries");
  problem.derived("--seq-kv", x.seq_kv, "keys, of which the last are the queries' own; as seq");
  problem.size("--dim", x.dim, "head dimension");
  problem.size("--stride", x.stride, "tokens of a cell of the estimate: 4, 8 or 16");
  problem.size("--block", x.block, "tokens of a block: 64 or 128");
  problem.size("--chunk", x.chunk, "2048 to 131072; changes no result");
  command->add_option("--threshold", x.threshold, "of the mass that chosen blocks must have")
      ->type_name("T")
      ->capture_default_str();
  command->add_option("--norm", x.norm, "divides the estimate's scores")
      ->type_name("F")
      ->capture_default_str();
  problem.word("--dtype", x.dtype, "f16 or bf16", {"f16", "bf16"})->capture_default_str();
  problem.word("--data", x.data, "like a model's, or normal", {"model", "normal"})
      ->capture_default_str();
  command->add_flag("--non-causal", x.non_causal, "queries see later keys, too");
  command->add_option("--seed", x.seed, "of the inputs")->capture_default_str();
  add_device_options(*command, options->device);
  add_without_option(*command);
  command->footer(
      "Scores are the estimate without its choice; prefill is all in one call. Data like a "
      "model's\n"
      "have a sink, stripes and decay with distance; of normal data nothing is sparse.");
  command->callback([options] {
    options->xattention.device = &chosen_device(options->device);
    measure_xattention(options->xattention);
  });
}

constexpr const char* kFooter =
    R"(--set gives a library kernel's remaining options (`kiln list`), or dims and params of a .tile file;
extents of a .tile file's tensors come from its inputs.
  kiln run block_sparse_attention --heads 8 --seq 4096 --density 0.25 --causal --check
  kiln run sparse_decode --batch 8 --heads 32 --heads-kv 8 --sparse-ratio 0.8
  kiln run xattention --seq 8192 --stride 8 --threshold 0.9
  kiln run k.tile --in x=x.npy --set scale=0.5 --out y=y.npy)";

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run",
                                         "measure block_sparse_attention, sparse_decode or "
                                         "xattention, or run a .tile file on .npy files");
  command->add_option("target", options->target, "block_sparse_attention or FILE.tile");
  CLI::Option_group* problem = command->add_option_group("Attention problem");
  add_problem(*problem, options->measure);
  CLI::Option_group* files = command->add_option_group("Files of a .tile kernel");
  files->add_option("--in", options->in, "an input")
      ->type_name("NAME=FILE.npy")
      ->allow_extra_args(false);
  files->add_option("--out", options->out, "where to write an output")
      ->type_name("NAME=FILE.npy")
      ->allow_extra_args(false);
  command->add_option("--set", options->set, "an option, dim or param")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  add_device_options(*command, options->device);
  add_emulator_options(*command, options->emulator);
  add_without_option(*command);
  command->footer(kFooter);
  add_decode(*command);
  add_xattention(*command);
  command->callback([command, options, problem, files] {
    if (command->get_subcommands().empty()) run(*options, *problem, *files);
  });
}

}  // namespace kiln::cli
