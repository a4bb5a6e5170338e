// kiln bench: the library's kernels on a device, beside what the device's memory can do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "ir/canon.h"
#include "ir/error.h"
#include "kernels/block_sparse_attention/block_sparse_attention.h"
#include "kernels/block_sparse_attention/entry.h"
#include "kernels/masks.h"
#include "runtime/compile.h"
#include "runtime/device.h"
#include "runtime/version.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"
#include "tools/kiln/device_array.h"
#include "tools/kiln/device_attention.h"
#include "tools/kiln/profile.h"

namespace kiln::cli {
namespace {

struct BenchOptions {
  std::vector<std::string> set;
  DeviceChoice device;
  EmulatorChoice emulator;
  std::string only;
  bool quick = false;
  int64_t rounds = 5;
};

// Normal numbers, a few million of them again and again: as good as fresh ones for speed.
Array normal_numbers(DType dtype, Shape shape) {
  constexpr int64_t kFresh = int64_t{1} << 20;
  Array array(dtype, std::move(shape));
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const int64_t fresh = std::min(kFresh, array.size());
  for (int64_t i = 0; i < fresh; ++i) array.set(i, normal(random));
  auto* bytes = static_cast<std::byte*>(array.data());
  const auto block = static_cast<size_t>(fresh) * size_of(dtype);
  for (size_t at = block; at < array.bytes(); at += block)
    std::copy_n(bytes, std::min(block, array.bytes() - at), bytes + at);
  return array;
}

NamedTexts blocks_of(int64_t dim, int64_t edge) {
  return {{"dim", std::to_string(dim)},
          {"block_m", std::to_string(edge)},
          {"block_n", std::to_string(edge)}};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Result {
  double milliseconds = 0;
  double flops = 0, bytes = 0;
};

class Bench {
 public:
  explicit Bench(const BenchOptions& options)
      : options_(options), device_(chosen_device(options.device, options.emulator)) {}

  void run() {
    fmt::print("device   {}\n", device_.description());
    const std::string target = device_.target();  // a CPU's features are many
    fmt::print("kiln     {}, target {}\n", version(), target.substr(0, target.find(" +")));
    fmt::print("         median of {} rounds; the device's time\n\n", options_.rounds);
    fmt::print("{:<64} {:>10} {:>9} {:>9}\n", "workload", "ms", "TFLOP/s", "GB/s");
    const int64_t rows = options_.quick ? 1024 : 32768;
    row(fmt::format("tile_copy f32 {}x8192", rows), [&] {
      return registered("tile_copy", {}, {{"x", {rows, 8192}}});
    });
    row(fmt::format("tile_copy f16 {}x8192", rows), [&] {
      return registered("tile_copy", {{"dtype", "f16"}}, {{"x", {rows, 8192}}});
    });
    row(fmt::format("row_softmax f32 {}x4096", rows), [&] {
      return registered("row_softmax", {{"tile_m", "1"}, {"tile_n", "4096"}},
                        {{"x", {rows, 4096}}});
    });
    const int64_t edge = options_.quick ? 1024 : 8192;
    row(fmt::format("matmul f16 {0}x{0}x{0}", edge), [&] {
      return registered("matmul", {{"dtype", "f16"}, {"out", "f16"}},
                        {{"a", {edge, edge}}, {"b", {edge, edge}}});
    });
    const int64_t seq = options_.quick ? 2048 : 32768;
    for (double density : {0.1, 0.3}) {
      row(fmt::format("block_sparse f16 B1 H32 S{} D128, blocks of 128, causal, {:.0f} %", seq,
                      100 * density),
          [&] { return attention(blocks_of(128, 128), seq, density); });
      row(fmt::format("block_sparse f16 B1 H32 S{} D64, blocks of 64, causal, {:.0f} %", seq,
                      100 * density),
          [&] { return attention(blocks_of(64, 64), seq, density); });
    }
    row(fmt::format("dense f16 B1 H32 S{} D128, causal", seq / 4), [&] {
      return attention({{"dim", "128"}, {"form", "dense"}}, seq / 4, 1);
    });
  }

 private:
  template <class Measure>
  void row(const std::string& what, const Measure& measure) {
    if (what.find(options_.only) == what.npos) return;
    try {
      const Result result = measure();
      fmt::print("{:<64} {:>10.4f} {:>9.2f} {:>9.1f}\n", what, result.milliseconds,
                 result.flops / result.milliseconds / 1e9,
                 result.bytes / result.milliseconds / 1e6);
    } catch (const Error& error) {
      fmt::print("{:<64} {}\n", what, error.what());
    }
    std::fflush(stdout);
  }

  double time(const Executable& executable, const Bindings& bindings) {
    if (options_.emulator.given()) {  // once: its counters are the same every time
      auto start = std::chrono::steady_clock::now();
      run_emulated(executable, bindings, options_.emulator);
      return milliseconds_since(start);
    }
    std::vector<double> times;
    for (int64_t i = 0; i < options_.rounds; ++i)
      times.push_back(device_.time_ms(executable, bindings, options_.quick ? 1 : 10));
    return median(times);
  }

  Result registered(const std::string& name, const std::map<std::string, std::string>& given,
                    const std::map<std::string, Shape>& inputs) {
    const KernelEntry& entry = kernel_named(name);
    const Options options = entry.with_defaults(given);
    Compiled compiled = compile(device_, entry.build(options, device_.target()));
    std::map<std::string, Array> arrays;
    std::list<DeviceArray> copies;
    Arguments arguments;
    for (const auto& [tensor, shape] : inputs) {
      arrays[tensor] = normal_numbers(compiled.signature().tensor(tensor)->dtype, shape);
      copies.emplace_back(device_, arrays[tensor].view());
      arguments.tensor(tensor, copies.back().memory());
    }
    for (auto& [tensor, array] : make_outputs(compiled.signature(), arguments)) {
      copies.emplace_back(device_, array.view());
      arguments.tensor(tensor, copies.back().memory());
    }
    const Bindings bindings = bind(compiled.signature(), arguments);
    const Work work = entry.work(options, bindings);
    return {time(*compiled.executable(), bindings), work.flops, work.bytes};
  }

  Result attention(NamedTexts given, int64_t seq, double density) {
    given["causal"] = "true";
    for (const auto& [name, value] : named("--set", options_.set)) given[name] = value;
    const AttentionConfig config =
        validated(attention_config(kernel_named("block_sparse_attention").with_defaults(given)),
                  device_.target());
    const Shape shape = {1, 32, seq, config.dim};
    Array q = normal_numbers(config.dtype, shape), k = q, v = q, o(config.dtype, shape), mask;
    AttentionArgs args{q.view(), k.view(), v.view(), o.view(), {}, {}, {}, {}, {}};
    if (config.form != BlockForm::Dense) {
      mask = random_mask(1, 32, grid_of(config, args), density, 2);
      args.mask = mask.view();
    }
    const AttentionWork work = attention_work(config, args);
    BlockSparseAttention kernel = block_sparse_attention(device_, config);
    DeviceAttention there(device_, args);
    const Bindings bindings = kernel.bind(there.args());
    return {time(*kernel.compiled().executable(), bindings), work.flops,
            3.0 * static_cast<double>(q.bytes())};
  }

  const BenchOptions& options_;
  Device& device_;
};

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "the speed of the library's kernels on a device");
  add_device_options(*command, options->device);
  add_emulator_options(*command, options->emulator);
  add_without_option(*command);
  command->add_option("--only", options->only, "workloads whose line contains this text")
      ->type_name("TEXT");
  command->add_option("--set", options->set, "an option of block_sparse_attention, for its lines")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_option("--rounds", options->rounds, "how often each is measured")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_flag("--quick", options->quick, "small problems, to see that everything runs");
  command->callback([options] { Bench(*options).run(); });
}

}  // namespace kiln::cli
