#include "tools/kiln/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "ir/error.h"
#include "kernels/block_sparse_attention/entry.h"
#include "kernels/compare.h"
#include "tools/kiln/device_attention.h"
#include "tools/kiln/progress.h"
#include "tools/kiln/timing.h"

namespace kiln::cli {
namespace {

// Random inputs and the arrays that results go to, in host memory.
struct Problem {
  AttentionConfig config;
  Array q, k, v, o, lse, mask;
  BlockLists lists;
  AttentionArgs args;
};

Array normal(DType dtype, const Shape& shape, std::mt19937_64& random) {
  Array array(dtype, shape);
  std::normal_distribution<double> distribution;
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, distribution(random));
  return array;
}

bool is_dense(const MeasureOptions& options) {
  return !options.top_k && !options.threshold && !options.density;
}

AttentionConfig config_for(const MeasureOptions& options) {
  std::map<std::string, std::string> given = {
      {"dtype", options.dtype},
      {"head_dim", std::to_string(options.dim)},
      {"head_dim_v", std::to_string(options.dim_v.value_or(options.dim))},
      {"block", std::to_string(options.block)},
      {"form", is_dense(options)      ? "dense"
               : options.form.empty() ? "mask"
                                      : options.form},
      {"causal", options.causal ? "true" : "false"}};
  for (const auto& [name, value] : options.settings) {
    if (given.contains(name))
      throw UserError(fmt::format("--set {}: kiln run has an option for it", name),
                      "kiln run --help");
    given[name] = value;
  }
  return attention_config(kernel_named("block_sparse_attention").with_defaults(given));
}

// Options that would otherwise be passed over in silence.
void check_options(const MeasureOptions& options) {
  bool scored = options.top_k || options.threshold;
  for (auto [given, option] : {std::pair(options.force_first, "--force-first"),
                               std::pair(options.dense_last, "--use-dense-for-last-block")})
    if (given && !scored)
      throw UserError(fmt::format("{}: it needs scores: --topk or --threshold", option));
  if (options.check && !options.emulator.only.empty())
    throw UserError("--check: with --block-only most of the result is missing");
  if (!options.form.empty() && is_dense(options))
    throw UserError("--form: no blocks are selected", "--topk, --threshold or --density");
}

Array choose_blocks(const MeasureOptions& options, const BlockGrid& grid) {
  if (options.density)
    return random_mask(options.batch, options.heads, grid, *options.density, options.seed + 1);
  Array scores = random_scores(options.batch, options.heads, grid, options.seed + 1);
  if (options.force_first && grid.cols())
    for (int64_t at = 0; at < scores.size(); at += grid.cols())
      scores.set(at, scores.get(at) + 100);
  Array mask = options.top_k ? top_k_mask(scores, *options.top_k)
                             : threshold_mask(scores, *options.threshold);
  if (options.dense_last) set_last_rows(mask);
  trim(mask, grid);
  return mask;
}

Problem make_problem(const MeasureOptions& options) {
  Progress progress("making inputs");
  Problem problem;
  AttentionConfig& config = problem.config =
      validated(config_for(options), options.device->target());
  std::mt19937_64 random(options.seed);
  int64_t heads_kv = options.heads_kv.value_or(options.heads);
  int64_t seq_kv = options.seq_kv.value_or(options.seq);
  problem.q =
      normal(config.dtype, {options.batch, options.heads, options.seq, config.head_dim}, random);
  problem.k = normal(config.dtype, {options.batch, heads_kv, seq_kv, config.head_dim}, random);
  problem.v = normal(config.dtype, {options.batch, heads_kv, seq_kv, config.dim_v()}, random);
  problem.o = Array(config.dtype, {options.batch, options.heads, options.seq, config.dim_v()});
  AttentionArgs& args = problem.args;
  args = {
      problem.q.view(), problem.k.view(), problem.v.view(), problem.o.view(), {}, {}, {}, {}, {}};
  if (config.lse) {
    problem.lse = Array(F32, {options.batch, options.heads, options.seq});
    args.lse = problem.lse.view();
  }
  if (options.scale) args.scale = static_cast<float>(*options.scale);
  if (config.form == BlockForm::Dense) return problem;
  problem.mask = choose_blocks(options, grid_of(config, args));
  if (config.form == BlockForm::Lists) {
    problem.lists = to_lists(problem.mask);
    args.counts = problem.lists.counts.view();
    args.indices = problem.lists.indices.view();
  } else {
    if (config.form == BlockForm::MaskI8) problem.mask = reinterpreted(problem.mask, I8);
    args.mask = problem.mask.view();
  }
  return problem;
}

Timing measure(const MeasureOptions& options, Problem& problem, const char* label) {
  Device& where = *options.device;
  std::optional<BlockSparseAttention> kernel;
  {
    Progress progress(fmt::format("compiling {}", label));
    kernel = block_sparse_attention(where, problem.config);
  }
  DeviceAttention arrays(where, problem.args);
  Progress progress(fmt::format("running {}", label));
  Timing timing;
  if (options.emulator.given()) {  // once: its counters are the same every time
    auto start = std::chrono::steady_clock::now();
    run_emulated(*kernel->executable(), kernel->bind(arrays.args()), options.emulator);
    timing = {milliseconds_since(start), 1};
  } else {
    timing = time([&] {
      (*kernel)(arrays.args());
      where.synchronize();
    });
  }
  arrays.download_results();
  return timing;
}

// All rows, or an even sample with the first and last rows if the reference would take long.
std::vector<int64_t> rows_to_check(const Problem& problem, double flops) {
  std::vector<int64_t> rows = all_rows(problem.args);
  constexpr double kFlops = 2e10;  // ten seconds or so of plain loops
  if (flops <= kFlops) return rows;
  auto wanted = std::max<size_t>(static_cast<size_t>(rows.size() * (kFlops / flops)), 16);
  std::vector<int64_t> sample;
  for (size_t i = 0; i < wanted; ++i) sample.push_back(rows[i * (rows.size() - 1) / (wanted - 1)]);
  sample.erase(std::unique(sample.begin(), sample.end()), sample.end());
  return sample;
}

void report(const char* what, const Comparison& comparison) {
  fmt::print("check    {}: {}: {}\n", what, comparison.ok() ? "right" : "WRONG", comparison.str());
}

bool check_results(const Problem& problem, double flops) {
  std::vector<int64_t> rows = rows_to_check(problem, flops);
  int64_t all = static_cast<int64_t>(all_rows(problem.args).size());
  if (static_cast<int64_t>(rows.size()) < all)
    fmt::print("check    against float64 on {} of {} rows, evenly spaced\n", rows.size(), all);
  else
    fmt::print("check    against float64 on all {} rows\n", all);
  Progress progress("checking");
  AttentionReference reference =
      attention_reference(problem.config, problem.args, std::move(rows), progress.setter());
  int64_t width = problem.config.dim_v();
  std::vector<double> o, lse;
  for (int64_t row : reference.rows) {
    for (int64_t d = 0; d < width; ++d) o.push_back(problem.o.get(row * width + d));
    if (problem.config.lse) lse.push_back(problem.lse.get(row));
  }
  Comparison output = compare(o, reference.o, width, accuracy_rule(problem.config.dtype));
  report("o", output);
  if (!problem.config.lse) return output.ok();
  Comparison sums = compare(lse, reference.lse, 1, lse_accuracy_rule());
  report("lse", sums);
  return output.ok() && sums.ok();
}

std::string describe(const MeasureOptions& options, const AttentionConfig& config) {
  std::string text = fmt::format(
      "{}{}, batch {}, heads {}/{}, seq {}/{}, dim {}/{}", config.causal ? "causal, " : "",
      name(config.dtype), options.batch, options.heads, options.heads_kv.value_or(options.heads),
      options.seq, options.seq_kv.value_or(options.seq), config.head_dim, config.dim_v());
  if (config.form != BlockForm::Dense)
    text += fmt::format(", blocks {}x{}", config.block.q, config.block.k);
  return text + fmt::format(", tiles {}x{}", config.block_m, config.block_n);
}

double rate(double flops, double milliseconds) {
  return flops / milliseconds / 1e6;
}

}  // namespace

void measure_attention(const MeasureOptions& options) {
  check_options(options);
  Device& where = *options.device;
  Problem problem = make_problem(options);
  check(problem.config, problem.args);
  AttentionWork work = attention_work(problem.config, problem.args);
  fmt::print("kernel   block_sparse_attention on {}\n", where.name());
  fmt::print("problem  {}, seed {}\n", describe(options, problem.config), options.seed);
  fmt::print("density  {} of {} visible blocks ({:.1f} %)\n", work.blocks.selected,
             work.blocks.visible, 100 * work.blocks.density());
  std::fflush(stdout);
  Timing timing = measure(options, problem, "the kernel");
  fmt::print("time     {:.3f} ms, median of {}\n", timing.milliseconds, timing.runs);
  fmt::print("speed    {:.1f} GFLOP/s of {:.3f} GFLOP\n", rate(work.flops, timing.milliseconds),
             work.flops / 1e9);
  std::fflush(stdout);
  bool right = !options.check || check_results(problem, work.flops);
  if (options.compare_dense) {
    problem.config.form = BlockForm::Dense;
    problem.args.mask = problem.args.counts = problem.args.indices = std::nullopt;
    double flops = attention_work(problem.config, problem.args).flops;
    Timing dense = measure(options, problem, "dense attention");
    fmt::print("dense    {:.3f} ms, {:.1f} GFLOP/s; the kernel takes {:.3f} of that\n",
               dense.milliseconds, rate(flops, dense.milliseconds),
               timing.milliseconds / dense.milliseconds);
  }
  if (!right) throw UserError("the result does not agree with the float64 reference");
}

}  // namespace kiln::cli
