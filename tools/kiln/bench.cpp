// kiln bench: the library's kernels on a device, beside what the device's memory can do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <sstream>

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
  std::vector<std::string> set, vary;
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
  return {{"head_dim", std::to_string(dim)}, {"block", std::to_string(edge)}};
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// A kernel compiled with one choice of options, and what it is run on.
struct Candidate {
  std::string name;  // the options that were varied
  Function compiled;
  Bindings bindings;
  Work work;
};

// "a=1,b=2" as texts of their own.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

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
    registered(fmt::format("tile_copy f32 {}x8192", rows), "tile_copy", {}, {{"x", {rows, 8192}}});
    registered(fmt::format("tile_copy f16 {}x8192", rows), "tile_copy", {{"dtype", "f16"}},
               {{"x", {rows, 8192}}});
    registered(fmt::format("row_softmax f32 {}x4096", rows), "row_softmax",
               {{"block_m", "1"}, {"block_n", "4096"}}, {{"x", {rows, 4096}}});
    for (int64_t edge : options_.quick ? Shape{1024} : Shape{4096, 8192})
      registered(fmt::format("matmul f16 {0}x{0}x{0}", edge), "matmul",
                 {{"dtype", "f16"},
                  {"out", "f16"},
                  {"rows", std::to_string(edge)},
                  {"columns", std::to_string(edge)}},
                 {{"a", {edge, edge}}, {"b", {edge, edge}}});
    const int64_t seq = options_.quick ? 2048 : 32768;
    for (double density : {0.1, 0.3}) {
      attention(fmt::format("block_sparse f16 B1 H32 S{} D128, blocks of 128, causal, {:.0f} %",
                            seq, 100 * density),
                blocks_of(128, 128), seq, density);
      attention(fmt::format("block_sparse f16 B1 H32 S{} D64, blocks of 64, causal, {:.0f} %", seq,
                            100 * density),
                blocks_of(64, 64), seq, density);
    }
    attention(fmt::format("dense f16 B1 H32 S{} D128, causal", seq / 4),
              {{"head_dim", "128"}, {"form", "dense"}}, seq / 4, 1);
  }

 private:
  bool is_wanted(const std::string& what) const { return what.find(options_.only) != what.npos; }

  // The options of each candidate: those given, with --set, and with each --vary in turn. Empty if
  // the kernel has no such option.
  std::vector<std::pair<std::string, Options>> choices(const KernelEntry& entry, NamedTexts given) {
    const auto has = [&](const std::string& name) {
      return std::any_of(entry.options.begin(), entry.options.end(),
                         [&](const OptionInfo& option) { return option.name == name; });
    };
    std::vector<std::string> variants = options_.vary;
    if (variants.empty()) variants.push_back("");
    std::vector<std::pair<std::string, Options>> found;
    for (const std::string& variant : variants) {
      std::vector<std::string> texts = options_.set;
      for (const std::string& text : split(variant)) texts.push_back(text);
      NamedTexts all = given;
      for (const auto& [name, value] : named("--set", texts)) {
        if (!has(name)) return {};
        all[name] = value;
      }
      found.emplace_back(variant, entry.with_defaults(all));
    }
    return found;
  }

  // Candidates in turn, round after round: a wandering clock meets them all.
  void measure(const std::string& what, const std::vector<Candidate>& candidates) {
    std::vector<std::vector<double>> times(candidates.size());
    // In the emulator once: its counters are the same every time.
    const int64_t rounds = options_.emulator.given() ? 1 : options_.rounds;
    try {
      for (int64_t round = 0; round < rounds; ++round)
        for (size_t i = 0; i < candidates.size(); ++i) times[i].push_back(time(candidates[i]));
    } catch (const Error& error) {
      fmt::print("{:<64} {}\n", what, error.what());
      return;
    }
    for (size_t i = 0; i < candidates.size(); ++i) {
      const double ms = median(times[i]);
      const Work& work = candidates[i].work;
      const std::string& name = candidates[i].name;
      fmt::print("{:<64} {:>10.4f} {:>9.2f} {:>9.1f}{}{}\n", what, ms, work.flops / ms / 1e9,
                 work.bytes / ms / 1e6, name.empty() ? "" : "  ", name);
    }
    std::fflush(stdout);
  }

  double time(const Candidate& candidate) {
    const Executable& executable = *candidate.compiled.executable();
    if (!options_.emulator.given())
      return device_.time_ms(executable, candidate.bindings, options_.quick ? 1 : 10);
    auto start = std::chrono::steady_clock::now();
    run_emulated(executable, candidate.bindings, options_.emulator);
    return milliseconds_since(start);
  }

  void registered(const std::string& what, const std::string& name, const NamedTexts& given,
                  const std::map<std::string, Shape>& inputs) {
    if (!is_wanted(what)) return;
    const KernelEntry& entry = kernel_named(name);
    std::list<DeviceArray> copies;
    Arguments arguments;
    std::vector<Candidate> candidates;
    for (const auto& [variant, options] : choices(entry, given)) {
      try {
        Function compiled = compile(device_, entry.build(options, device_.target()));
        if (candidates.empty()) place(compiled.signature(), inputs, copies, arguments);
        const Bindings bindings = bind(compiled.signature(), arguments);
        candidates.push_back({variant, compiled, bindings, entry.work(options, bindings)});
      } catch (const Error& error) {
        fmt::print("{:<64} {}  {}\n", what, error.what(), variant);
      }
    }
    measure(what, candidates);
  }
  // Inputs and outputs on the device.
  void place(const Signature& signature, const std::map<std::string, Shape>& inputs,
             std::list<DeviceArray>& copies, Arguments& arguments) {
    for (const auto& [tensor, shape] : inputs) {
      const Array array = normal_numbers(signature.tensor(tensor)->dtype, shape);
      copies.emplace_back(device_, array.view());
      arguments.tensor(tensor, copies.back().memory());
    }
    for (auto& [tensor, array] : make_outputs(signature, arguments)) {
      copies.emplace_back(device_, array.view());
      arguments.tensor(tensor, copies.back().memory());
    }
  }

  void attention(const std::string& what, NamedTexts given, int64_t seq, double density) {
    if (!is_wanted(what)) return;
    given["causal"] = "true";
    std::vector<AttentionConfig> configs;
    std::vector<std::string> variants;
    for (const auto& [variant, options] :
         choices(kernel_named("block_sparse_attention"), std::move(given))) {
      configs.push_back(validated(attention_config(options), device_.target()));
      variants.push_back(variant);
    }
    if (configs.empty()) return;
    const AttentionConfig& first = configs.front();  // what is varied changes no problem
    const Shape shape = {1, 32, seq, first.head_dim};
    Array q = normal_numbers(first.dtype, shape), o(first.dtype, shape), mask;
    AttentionArgs args{q.view(), q.view(), q.view(), o.view(), {}, {}, {}, {}, {}};
    if (first.form != BlockForm::Dense) {
      mask = random_mask(1, 32, grid_of(first, args), density, 2);
      args.mask = mask.view();
    }
    const Work work{attention_work(first, args).flops, 3.0 * static_cast<double>(q.bytes())};
    DeviceAttention there(device_, args);
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < configs.size(); ++i) {
      try {
        BlockSparseAttention kernel = block_sparse_attention(device_, configs[i]);
        candidates.push_back({variants[i], kernel, kernel.bind(there.args()), work});
      } catch (const Error& error) {
        fmt::print("{:<64} {}  {}\n", what, error.what(), variants[i]);
      }
    }
    measure(what, candidates);
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
  command
      ->add_option("--set", options->set,
                   "an option of a kernel; lines of kernels without it are left out")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--vary", options->vary,
                   "options of one candidate; all of them are measured in turn")
      ->type_name("NAME=VALUE,…")
      ->allow_extra_args(false);
  command->add_option("--rounds", options->rounds, "how often each is measured")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  command->add_flag("--quick", options->quick, "small problems, to see that everything runs");
  command->callback([options] { Bench(*options).run(); });
}

}  // namespace kiln::cli
