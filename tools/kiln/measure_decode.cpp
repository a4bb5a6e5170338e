#include "tools/kiln/measure_decode.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <list>
#include <numeric>
#include <random>

#include "ir/error.h"
#include "kernels/compare.h"
#include "kernels/sparse_decode/entry.h"
#include "tools/kiln/device_array.h"
#include "tools/kiln/progress.h"
#include "tools/kiln/timing.h"

namespace kiln::cli {
namespace {

// Random inputs and the arrays that results go to, in host memory.
struct Problem {
  DecodeConfig config;
  Array q, k, v, o, lse, lengths, chosen, table;
  DecodeArgs args;
};

bool is_paged(const DecodeOptions& options) {
  return options.form == "paged";
}
double ratio_of(const DecodeOptions& options) {
  return options.sparse_ratio.value_or(is_paged(options) ? 0.0 : 0.8);
}

DecodeConfig config_for(const DecodeOptions& options) {
  if (options.heads_kv < 1 || options.heads < 1 || options.heads % options.heads_kv)
    throw UserError(fmt::format("--heads: expected a multiple of the {} kv heads, got {}",
                                options.heads_kv, options.heads));
  const bool paged = is_paged(options);
  if (!paged && (options.page_block_size || options.num_pages))
    throw UserError("--page-block-size, --num-pages: only --form paged has pages");
  std::map<std::string, std::string> given = {
      {"dtype", options.dtype},
      {"head_dim", std::to_string(options.dim)},
      {"head_dim_v", std::to_string(options.dim_v)},
      {"group", std::to_string(options.heads / options.heads_kv)},
      {"block", std::to_string(options.block_size.value_or(paged ? 64 : 32))},
      {"page", std::to_string(paged ? options.page_block_size.value_or(256) : 0)},
      {"form", options.form == "mask" ? "mask" : "indices"}};
  for (const auto& [name, value] : options.settings) {
    if (given.contains(name) || name == "tokens" || name == "left_pad" || name == "per_token")
      throw UserError(fmt::format("--set {}: kiln run makes the inputs of this", name),
                      "kiln run sparse_decode --help");
    given[name] = value;
  }
  return decode_config(kernel_named("sparse_decode").with_defaults(given));
}

Array normal(DType dtype, const Shape& shape, std::mt19937_64& random) {
  Array array(dtype, shape);
  std::normal_distribution<float> distribution;
  for (int64_t i = 0; i < array.size(); ++i) array.set(i, distribution(random));
  return array;
}

// Large: its rows begin at random places of one sequence of normals.
Array normal_cache(DType dtype, const Shape& shape, std::mt19937_64& random) {
  const int64_t width = shape.back(), places = 65536;
  const Array pool = normal(dtype, {places + width}, random);
  Array array(dtype, shape);
  const size_t bytes = static_cast<size_t>(width) * size_of(dtype);
  auto* row = static_cast<std::byte*>(array.data());
  for (int64_t i = 0; i < array.size(); i += width, row += bytes)
    std::memcpy(row,
                static_cast<const std::byte*>(pool.data()) + random() % places * size_of(dtype),
                bytes);
  return array;
}

void make_cache(const DecodeOptions& options, Problem& problem, std::mt19937_64& random) {
  const DecodeConfig& c = problem.config;
  int64_t outer = options.batch, inner = options.max_cache_seqlen;
  if (c.page) {
    const int64_t slots = (inner + c.page - 1) / c.page;
    outer = options.num_pages.value_or(1024);
    inner = c.page;
    if (outer < options.batch * slots)
      throw UserError(fmt::format("--num-pages: expected at least {} for {} sequences, got {}",
                                  options.batch * slots, options.batch, outer));
    std::vector<double> pages(static_cast<size_t>(outer));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random);
    pages.resize(static_cast<size_t>(options.batch * slots));
    problem.table = Array(I32, {options.batch, slots}, pages);
    problem.args.table = problem.table.view();
  }
  problem.k = normal_cache(c.dtype, {outer, inner, options.heads_kv, c.head_dim}, random);
  problem.v = normal_cache(c.dtype, {outer, inner, options.heads_kv, c.dim_v()}, random);
  problem.lengths = Array(I32, {options.batch});
  const int64_t longest = options.max_cache_seqlen;
  for (int64_t b = 0; b < options.batch && longest > 0; ++b)
    problem.lengths.set(b, static_cast<double>(1 + random() % static_cast<uint64_t>(longest)));
}

// A random part of the blocks of each sequence, drawn for each kv head: at most (1 − ratio) of the
// longest's, padded with -1; or the same as a mask.
void choose_blocks(const DecodeOptions& options, Problem& problem, std::mt19937_64& random) {
  const int64_t block = problem.config.block, longest = options.max_cache_seqlen;
  const auto most = static_cast<int64_t>(std::ceil(
      static_cast<double>(longest) * (1 - ratio_of(options)) / static_cast<double>(block)));
  const int64_t blocks = (longest + block - 1) / block;
  const bool mask = problem.config.form == DecodeForm::MaskBool;
  problem.chosen =
      Array(mask ? Bool : I32, {options.batch, options.heads_kv, mask ? blocks : most});
  const int64_t width = problem.chosen.shape()[2];
  for (int64_t row = 0; row < options.batch * options.heads_kv; ++row) {
    const auto length = static_cast<int64_t>(problem.lengths.get(row / options.heads_kv));
    std::vector<int64_t> all(static_cast<size_t>((length + block - 1) / block));
    std::iota(all.begin(), all.end(), 0);
    std::shuffle(all.begin(), all.end(), random);
    for (int64_t i = 0; i < most; ++i) {
      const bool is = i < static_cast<int64_t>(all.size());
      if (!mask)
        problem.chosen.set(row * width + i,
                           is ? static_cast<double>(all[static_cast<size_t>(i)]) : -1);
      else if (is)
        problem.chosen.set(row * width + all[static_cast<size_t>(i)], 1);
    }
  }
  problem.args.chosen = problem.chosen.view();
}

Problem make_problem(const DecodeOptions& options) {
  Progress progress("making inputs");
  Problem problem;
  const DecodeConfig& c = problem.config = config_for(options);
  std::mt19937_64 random(options.seed);
  problem.q = normal(c.dtype, {options.batch, options.heads, c.head_dim}, random);
  problem.o = Array(c.dtype, {options.batch, options.heads, c.dim_v()});
  make_cache(options, problem, random);
  choose_blocks(options, problem, random);
  DecodeArgs& args = problem.args;
  args.q = problem.q.view();
  args.k = problem.k.view();
  args.v = problem.v.view();
  args.o = problem.o.view();
  args.lengths = problem.lengths.view();
  if (c.lse) {
    problem.lse = Array(F32, {options.batch, options.heads});
    args.lse = problem.lse.view();
  }
  args.splits = options.splits;
  args.batch_invariant = options.batch_invariant;
  return problem;
}

// Runs a problem's kernel on copies of its arrays; o and lse come back.
Timing measure(const DecodeOptions& options, const DecodeConfig& config, const DecodeArgs& host,
               const char* label) {
  Device& where = *options.device;
  Progress progress(fmt::format("running {}", label));
  const SparseDecode kernel = sparse_decode(where, config);
  std::list<DeviceArray> arrays;
  const auto copy = [&](Memory& memory) { memory = arrays.emplace_back(where, memory).memory(); };
  DecodeArgs args = host;
  for (Memory* memory : {&args.q, &args.k, &args.v, &args.o, &args.lengths}) copy(*memory);
  for (auto* memory : {&args.chosen, &args.table, &args.lse})
    if (*memory) copy(**memory);
  Timing timing;
  if (options.emulator.given()) {  // once: its counters are the same every time
    const auto start = std::chrono::steady_clock::now();
    run_emulated(*kernel.executable(), kernel.bind(args), options.emulator);
    timing = {milliseconds_since(start), 1};
  } else {
    timing = time([&] {
      kernel(args);
      where.synchronize();
    });
  }
  where.synchronize();
  where.download(host.o.data, args.o.data, bytes_of(host.o.dtype, host.o.shape));
  if (host.lse)
    where.download(host.lse->data, args.lse->data, bytes_of(host.lse->dtype, host.lse->shape));
  return timing;
}

bool report(const char* what, const Comparison& comparison) {
  fmt::print("check    {}: {}: {}\n", what, comparison.ok() ? "right" : "WRONG", comparison.str());
  return comparison.ok();
}

bool check_results(const Problem& problem) {
  Progress progress("checking");
  const DecodeReference reference = decode_reference(problem.config, problem.args);
  const DecodeConfig& c = problem.config;
  bool right = report("o against float64",
                      compare(problem.o.values(), reference.o, c.dim_v(), accuracy_rule(c.dtype)));
  if (c.lse)
    right &= report("lse against float64",
                    compare(problem.lse.values(), reference.lse, 1, lse_accuracy_rule()));
  return right;
}

void print_speed(const char* what, const Timing& timing, const DecodeWork& work) {
  fmt::print("{:<8} {:.3f} ms, median of {}; {:.1f} GB/s of {:.3f} MB\n", what, timing.milliseconds,
             timing.runs, work.bytes / timing.milliseconds / 1e6, work.bytes / 1e6);
  std::fflush(stdout);
}

void print_problem(const DecodeOptions& options, const Problem& problem, const DecodeWork& work,
                   const DecodeWork& dense) {
  const DecodeConfig& c = problem.config;
  fmt::print("kernel   sparse_decode on {}\n", options.device->name());
  fmt::print("problem  {} {}, batch {}, heads {}/{}, cache {}, dim {}/{}, block {}{}, seed {}\n",
             options.form, name(c.dtype), options.batch, options.heads, options.heads_kv,
             options.max_cache_seqlen, c.head_dim, c.dim_v(), c.block,
             c.page ? fmt::format(", page {}", c.page) : "", options.seed);
  fmt::print(
      "density  {} of {} keys ({:.1f} %)\n", work.keys, dense.keys,
      dense.keys ? 100.0 * static_cast<double>(work.keys) / static_cast<double>(dense.keys) : 0);
  std::fflush(stdout);
}

}  // namespace

void measure_decode(const DecodeOptions& options) {
  if (!options.emulator.only.empty())
    throw UserError("--block-only: the check needs the whole result");
  Problem problem = make_problem(options);
  check(problem.config, problem.args);
  DecodeConfig dense_config = problem.config;
  DecodeArgs dense_args = problem.args;
  dense_config.form = DecodeForm::Dense;
  dense_args.chosen.reset();
  Array dense_o(problem.o.dtype(), problem.o.shape()), dense_lse(F32, problem.lse.shape());
  dense_args.o = dense_o.view();
  if (dense_args.lse) dense_args.lse = dense_lse.view();
  const DecodeWork work = decode_work(problem.config, problem.args);
  const DecodeWork dense_work = decode_work(dense_config, dense_args);
  print_problem(options, problem, work, dense_work);
  const Timing sparse = measure(options, problem.config, problem.args, "the kernel");
  print_speed("sparse", sparse, work);
  const Timing dense = measure(options, dense_config, dense_args, "dense decode");
  print_speed("dense", dense, dense_work);
  fmt::print("ratio    sparse takes {:.3f} of dense\n", sparse.milliseconds / dense.milliseconds);
  std::fflush(stdout);
  bool right = check_results(problem);
  if (ratio_of(options) == 0)
    right &= report("o against dense",
                    compare(problem.o.values(), dense_o.values(), problem.config.dim_v(),
                            accuracy_rule(problem.config.dtype)));
  if (!right) throw UserError("the result does not agree");
}

}  // namespace kiln::cli
