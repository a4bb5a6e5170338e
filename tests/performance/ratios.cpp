// The speed of the host tier as ratios within one run, so that they mean something on any machine:
// time against kept blocks, against the FMA peak of the cores, threads against one, and what
// compiling and loading cost. A ratio that misses its bound is measured again, at most three times;
// on a machine that others keep busy it is reported as noisy instead of failed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "ir/canon.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "passes/pipeline.h"
#include "runtime/host_device.h"
#include "runtime/thread_pool.h"
#include "tests/performance/fma_peak.h"
#include "tests/performance/noise.h"

namespace kiln::performance {
namespace {

double milliseconds(const std::function<void()>& work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Medians of several pieces of work, measured in turn so that all see the same machine.
std::vector<double> paired_medians(int rounds, const std::vector<std::function<double()>>& pieces) {
  std::vector<std::vector<double>> results(pieces.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < pieces.size(); ++i) results[i].push_back(pieces[i]());
  std::vector<double> medians;
  for (auto& values : results) medians.push_back(median(values));
  return medians;
}

// A result and whether it is within its bound.
struct Finding {
  std::string text;
  bool good;
};

class Report {
 public:
  void check(const std::string& name, const std::function<Finding()>& measure) {
    constexpr int kTries = 3;
    constexpr double kQuiet = 0.1;  // of all cores, used by others
    for (int attempt = 1;; ++attempt) {
      NoiseMeter noise;
      Finding finding = measure();
      const double others = noise.others_share();
      const bool last = attempt == kTries;
      const char* verdict = finding.good      ? "ok"
                            : !last           ? "again"
                            : others > kQuiet ? "noisy"
                                              : "FAILED";
      fmt::print("{:<34} {:<7} {}  (others {:.0f}% of the cores, load {:.1f})\n", name, verdict,
                 finding.text, 100 * others, load_average());
      std::fflush(stdout);
      if (finding.good || last) {
        ++(finding.good || others > kQuiet ? passed_ : failed_);
        return;
      }
    }
  }
  int finish() const {
    fmt::print("{} passed, {} failed\n", passed_, failed_);
    return failed_ ? 1 : 0;
  }

 private:
  int passed_ = 0, failed_ = 0;
};

// Attention on normal inputs: batch 1, one head width, causal.
class Attention {
 public:
  Attention(const AttentionConfig& config, int64_t heads, int64_t seq)
      : config_(config),
        q_(normal({1, heads, seq, config.head_dim}, 1)),
        k_(normal({1, heads, seq, config.head_dim}, 2)),
        v_(normal({1, heads, seq, config.dim_v()}, 3)),
        o_(config.dtype, {1, heads, seq, config.dim_v()}),
        dense_(block_sparse_attention(host_device(), with_form(BlockForm::Dense))),
        sparse_(block_sparse_attention(host_device(), with_form(BlockForm::MaskBool))) {
    args_ = {.q = q_.view(), .k = k_.view(), .v = v_.view(), .o = o_.view()};
  }

  double dense_ms() {
    return milliseconds([&] { dense_(args_); });
  }
  double sparse_ms(Array& mask) {
    AttentionArgs args = args_;
    args.mask = mask.view();
    return milliseconds([&] { sparse_(args); });
  }
  Array mask(double density) {
    return random_mask(1, q_.shape()[1], grid_of(config_, args_), density, 7);
  }
  double dense_flops() { return attention_work(with_form(BlockForm::Dense), args_).flops; }
  int64_t kept(Array& mask) { return count_blocks(mask.view(), grid_of(config_, args_)).selected; }

 private:
  AttentionConfig with_form(BlockForm form) const {
    AttentionConfig config = config_;
    config.form = form;
    return config;
  }
  Array normal(Shape shape, uint64_t seed) const {
    Array array(config_.dtype, std::move(shape));
    std::mt19937_64 random(seed);
    std::normal_distribution<double> distribution;
    for (int64_t i = 0; i < array.size(); ++i) array.set(i, distribution(random));
    return array;
  }

  AttentionConfig config_;
  Array q_, k_, v_, o_;
  BlockSparseAttention dense_, sparse_;
  AttentionArgs args_;
};

// Share of the variance of y that a straight line over x explains.
double r_squared(const std::vector<double>& x, const std::vector<double>& y) {
  const double n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sx += x[i], sy += y[i];
    sxx += x[i] * x[i], sxy += x[i] * y[i], syy += y[i] * y[i];
  }
  const double covariance = n * sxy - sx * sy;
  return covariance * covariance / ((n * sxx - sx * sx) * (n * syy - sy * sy));
}

Finding linear_in_blocks(Attention& attention) {
  std::vector<Array> masks;
  std::vector<double> blocks;
  for (double density : {0.05, 0.1, 0.25, 0.4, 0.6, 0.8}) {
    masks.push_back(attention.mask(density));
    blocks.push_back(static_cast<double>(attention.kept(masks.back())));
  }
  std::vector<std::function<double()>> pieces;
  for (Array& mask : masks) pieces.push_back([&] { return attention.sparse_ms(mask); });
  std::vector<double> times = paired_medians(5, pieces);
  double fit = r_squared(blocks, times);
  return {fmt::format("R² {:.4f} of time over kept blocks (> 0.99); ms {:.1f}", fit,
                      fmt::join(times, " ")),
          fit > 0.99};
}

Finding quarter_against_dense(Attention& attention) {
  Array mask = attention.mask(0.25);
  auto times = paired_medians(
      7, {[&] { return attention.sparse_ms(mask); }, [&] { return attention.dense_ms(); }});
  double ratio = times[0] / times[1];
  return {fmt::format("25 % of the blocks {:.1f} ms, dense {:.1f} ms: {:.3f} (≤ 0.35)", times[0],
                      times[1], ratio),
          ratio <= 0.35};
}

Finding dense_against_peak(Attention& attention) {
  const int threads = host_threads();
  auto results = paired_medians(
      5, {[&] { return attention.dense_ms(); }, [&] { return fma_peak_gflops(threads, 0.2); }});
  double rate = attention.dense_flops() / results[0] / 1e6, share = rate / results[1];
  return {fmt::format("dense {:.0f} GFLOP/s, FMA peak of {} threads {:.0f}: {:.2f} (≥ 0.35)", rate,
                      threads, results[1], share),
          share >= 0.35};
}

Finding two_threads(Attention& attention) {
  auto with = [&](int threads) {
    return [&attention, threads] {
      set_host_threads(threads);
      double ms = attention.dense_ms();
      set_host_threads(0);
      return ms;
    };
  };
  auto times = paired_medians(5, {with(1), with(2)});
  double gain = times[0] / times[1];
  return {fmt::format("1 thread {:.1f} ms, 2 threads {:.1f} ms: {:.2f} × (≥ 1.7)", times[0],
                      times[1], gain),
          gain >= 1.7};
}

AttentionConfig example() {
  return {.head_dim = 128, .block = 128, .causal = true};
}

Finding tracing_and_passes() {
  double ms = paired_medians(9, {[] {
                               return milliseconds([] {
                                 Kernel kernel =
                                     canonical(block_sparse_attention_kernel(example()));
                                 run_passes(kernel, pipeline_for(Tier::Host));
                               });
                             }})[0];
  return {fmt::format("{:.1f} ms (≤ 20)", ms), ms <= 20};
}

// Compiling with an empty cache, then loading what it left there.
struct CompileTimes {
  double cold, load;
};
CompileTimes compile_times(const std::string& directory) {
  std::vector<double> cold, load;
  for (int round = 0; round < 5; ++round) {
    std::filesystem::remove_all(directory);
    for (auto* times : {&cold, &load}) {
      forget_compiled();
      times->push_back(milliseconds([] { block_sparse_attention(host_device(), example()); }));
    }
  }
  return {median(cold), median(load)};
}

int run() {
  const std::string directory =
      (std::filesystem::temp_directory_path() / fmt::format("kiln-ratios-{}", getpid())).string();
  setenv("KILN_CACHE_DIR", directory.c_str(), 1);
  Report report;
  report.check("tracing and passes", tracing_and_passes);
  report.check("cold compile", [&] {
    double ms = compile_times(directory).cold;
    return Finding{fmt::format("{:.0f} ms (≤ 500)", ms), ms <= 500};
  });
  report.check("load from the disk cache", [&] {
    double ms = compile_times(directory).load;
    return Finding{fmt::format("{:.1f} ms with tracing (≤ 10)", ms), ms <= 10};
  });
  Attention attention(example(), 8, 4096);
  report.check("time follows kept blocks", [&] { return linear_in_blocks(attention); });
  report.check("a quarter of the blocks", [&] { return quarter_against_dense(attention); });
  report.check("dense against the FMA peak", [&] { return dense_against_peak(attention); });
  if (std::thread::hardware_concurrency() >= 2)
    report.check("two threads", [&] { return two_threads(attention); });
  std::filesystem::remove_all(directory);
  return report.finish();
}

}  // namespace
}  // namespace kiln::performance

int main() {
  return kiln::performance::run();
}
