#include "tools/kiln/measure_xattention.h"

#include <fmt/format.h>

#include <cmath>
#include <list>
#include <random>

#include "ir/error.h"
#include "kernels/compare.h"
#include "kernels/xattention/prefill.h"
#include "tools/kiln/device_array.h"
#include "tools/kiln/model_like.h"
#include "tools/kiln/progress.h"
#include "tools/kiln/timing.h"

namespace kiln::cli {
namespace {

// Arrays in the device's memory; their contents come from host memory or are what runs write.
class There {
 public:
  explicit There(Device& device) : device_(device) {}
  Memory copy(const Memory& host) { return arrays_.emplace_back(device_, host).memory(); }
  Memory make(DType dtype, const Shape& shape) {
    const Array zeros(dtype, shape);
    return copy(Memory::contiguous(const_cast<void*>(zeros.data()), dtype, shape));
  }
  Array fetch(const Memory& there) const {
    Array array(there.dtype, there.shape);
    device_.synchronize();
    device_.download(array.data(), there.data, array.bytes());
    return array;
  }

 private:
  Device& device_;
  std::list<DeviceArray> arrays_;
};

PrefillConfig config_for(const XattentionOptions& options) {
  PrefillConfig config;
  config.dtype = options.dtype == "bf16" ? BF16 : F16;
  config.head_dim = options.dim;
  config.stride = options.stride;
  config.block = options.block;
  config.causal = !options.non_causal;
  config.chunk = options.chunk;
  config.choice = true;
  config.dense_below = 0;  // measured, even where it does not pay
  return validated(config, options.device->target());
}

struct Problem {
  PrefillConfig config;
  Array q, k, v;
};

Problem make_problem(const XattentionOptions& options) {
  Progress progress("making inputs");
  Problem problem;
  problem.config = config_for(options);
  const DType dtype = problem.config.dtype;
  const int64_t heads_kv = options.heads_kv.value_or(options.heads);
  const int64_t seq_kv = options.seq_kv.value_or(options.seq);
  if (heads_kv < 1 || options.heads % heads_kv)
    throw UserError(fmt::format("--heads: expected a multiple of the {} kv heads, got {}", heads_kv,
                                options.heads));
  if (seq_kv < options.seq)
    throw UserError(fmt::format("--seq-kv: expected {} or more, the queries' own keys, got {}",
                                options.seq, seq_kv));
  problem.q = Array(dtype, {options.batch, options.heads, options.seq, options.dim});
  problem.k = Array(dtype, {options.batch, heads_kv, seq_kv, options.dim});
  problem.v = Array(dtype, {options.batch, heads_kv, seq_kv, options.dim});
  std::mt19937_64 random(options.seed + 1);
  std::normal_distribution<float> normal;
  const auto fill = [&](Array& array) {
    for (int64_t i = 0; i < array.size(); ++i) array.set(i, normal(random));
  };
  fill(problem.v);
  if (options.data == "model") {
    fill_model_like(problem.q, problem.k, options.seed);
  } else {
    fill(problem.q);
    fill(problem.k);
  }
  return problem;
}

template <class Call, class Args>
Timing measure(Device& where, const char* label, const Call& call, const Args& args) {
  Progress progress(fmt::format("running {}", label));
  return time([&] {
    call(args);
    where.synchronize();
  });
}

// Rows that are compared with float64, evenly spaced.
std::vector<int64_t> some_rows(const AttentionArgs& args) {
  constexpr int64_t kRows = 64;
  const std::vector<int64_t> all = all_rows(args);
  if (static_cast<int64_t>(all.size()) <= kRows) return all;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < kRows; ++i) rows.push_back(all[i * (all.size() - 1) / (kRows - 1)]);
  return rows;
}

// |sparse − dense| / |dense| over everything.
double relative_error(const Array& sparse, const Array& dense) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < dense.size(); ++i) {
    difference += std::pow(sparse.get(i) - dense.get(i), 2);
    size += std::pow(dense.get(i), 2);
  }
  return size > 0 ? std::sqrt(difference / size) : 0;
}

void print_time(const char* what, double milliseconds, int runs, const std::string& note) {
  fmt::print("{:<9}{:.3f} ms{}{}\n", what, milliseconds,
             runs ? fmt::format(", median of {}", runs) : "", note);
  std::fflush(stdout);
}

}  // namespace

void measure_xattention(const XattentionOptions& options) {
  Device& where = *options.device;
  Problem problem = make_problem(options);
  const PrefillConfig& c = problem.config;
  There there(where);
  PrefillArgs args{.q = there.copy(problem.q.view()),
                   .k = there.copy(problem.k.view()),
                   .v = there.copy(problem.v.view()),
                   .o = there.make(c.dtype, problem.q.shape())};
  args.threshold = static_cast<float>(options.threshold);
  args.norm = static_cast<float>(options.norm);
  const BlockGrid grid{options.seq, problem.k.shape()[2], c.block, c.causal};
  const Shape cells = {options.batch, options.heads, grid.rows(), grid.cols()};
  args.mask = there.make(Bool, cells);
  args.counts = there.make(I32, {cells[0], cells[1], cells[2]});
  args.indices = there.make(I32, cells);
  check(c, args);
  const XattentionPrefill prefill = xattention_prefill(where, c);
  const Timing whole = measure(where, "the prefill", prefill, args);
  const Array chosen = there.fetch(*args.mask);
  const BlockCount blocks = count_blocks(Array(chosen).view(), grid);
  fmt::print("kernel   xattention_prefill on {}\n", where.name());
  fmt::print(
      "problem  {}{}, batch {}, heads {}/{}, seq {}/{}, dim {}, block {}, stride {}, threshold {}, "
      "norm {}, {} data, seed {}\n",
      c.causal ? "causal, " : "", name(c.dtype), options.batch, options.heads, problem.k.shape()[1],
      options.seq, problem.k.shape()[2], options.dim, c.block, c.stride, options.threshold,
      options.norm, options.data, options.seed);
  fmt::print("density  {} of {} visible blocks ({:.1f} %)\n", blocks.selected, blocks.visible,
             100 * blocks.density());

  // The phases by themselves: the estimate, of it the choice, and the attention.
  EstimateArgs estimated = estimate_of(args);
  estimated.sums = there.make(F32, cells);
  estimated.mask = *args.mask;
  estimated.counts = args.counts;
  estimated.indices = args.indices;
  const EstimateConfig estimate_config = validated(c.estimate());
  const Timing estimate =
      measure(where, "the estimate", xattn_estimate(where, estimate_config), estimated);
  const std::vector<double> starts(
      static_cast<size_t>(options.batch),
      std::floor(static_cast<double>(problem.k.shape()[2] - options.seq) /
                 static_cast<double>(c.block)));
  const std::vector<double> columns(static_cast<size_t>(options.batch),
                                    static_cast<double>(grid.cols()));
  Array first(I32, {options.batch}, starts), there_are(I32, {options.batch}, columns);
  SelectArgs selected{static_cast<const ChoiceArgs&>(estimated), estimated.sums,
                      there.copy(first.view()), there.copy(there_are.view())};
  const Timing choice =
      measure(where, "the choice", select_blocks(where, estimate_config.select), selected);
  // The lists once more as the estimate makes them.
  xattn_estimate(where, estimate_config)(estimated);
  AttentionArgs attended = attention_of(args);
  attended.counts = args.counts;
  attended.indices = args.indices;
  const BlockSparseAttention attention = block_sparse_attention(where, c.attention());
  const Timing attend = measure(where, "the attention", attention, attended);
  const double work = 4.0 * static_cast<double>(c.head_dim * c.block * c.block) *
                      static_cast<double>(blocks.selected);
  print_time("scores", estimate.milliseconds - choice.milliseconds, 0,
             ": the estimate without its choice");
  print_time("choice", choice.milliseconds, choice.runs, "");
  print_time("attend", attend.milliseconds, attend.runs,
             fmt::format("; {:.1f} GFLOP/s", work / attend.milliseconds / 1e6));
  print_time("prefill", whole.milliseconds, whole.runs, ": all in one call");

  AttentionConfig dense_config = c.attention();
  dense_config.form = BlockForm::Dense;
  dense_config.per_kv_head = false;
  AttentionArgs dense_args = attention_of(args);
  dense_args.o = there.make(c.dtype, problem.q.shape());
  const BlockSparseAttention dense_call = block_sparse_attention(where, dense_config);
  const Timing dense = measure(where, "dense attention", dense_call, dense_args);
  print_time("dense", dense.milliseconds, dense.runs,
             fmt::format("; the prefill is {:.2f} times as fast",
                         dense.milliseconds / whole.milliseconds));
  Array o = there.fetch(args.o);
  const Array full = there.fetch(dense_args.o);
  fmt::print("error    {:.2e} of full attention, |sparse - full| / |full|\n",
             relative_error(o, full));

  Progress progress("checking");
  Array counts = there.fetch(*args.counts), indices = there.fetch(*args.indices);
  AttentionArgs host{problem.q.view(), problem.k.view(), problem.v.view(), o.view()};
  host.counts = counts.view();
  host.indices = indices.view();
  AttentionConfig host_config = attention.config();
  const AttentionReference reference =
      attention_reference(host_config, host, some_rows(host), progress.setter());
  const Comparison result = compare(rows_of(host, host.o, reference.rows), reference.o, c.dim_v(),
                                    accuracy_rule(c.dtype));
  fmt::print("check    o against float64 on {} rows: {}: {}\n", reference.rows.size(),
             result.ok() ? "right" : "WRONG", result.str());
  if (!result.ok()) throw UserError("the result does not agree with the float64 reference");
}

}  // namespace kiln::cli
