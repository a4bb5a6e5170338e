// kiln prebuild: the disk cache filled before anybody calls, for machines that are not this one.
#include <fmt/format.h>

#include <memory>

#include "ir/error.h"
#include "passes/gpu_target.h"
#include "runtime/host_code.h"
#include "runtime/prepare.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"

namespace kiln::cli {
namespace {

struct PrebuildOptions {
  std::vector<std::string> archs, kernels, set;
  std::string out;
  bool all = false;
};

// A kernel to compile, and how it is called in a line of the output.
struct Job {
  std::string text;
  std::function<Kernel(std::string_view target)> build;
};

// "block_sparse_attention causal=true head_dim=64": what differs from the defaults.
std::string job_text(const KernelEntry& entry, const NamedTexts& settings) {
  std::string text = entry.name;
  for (const OptionInfo& option : entry.options)
    if (auto it = settings.find(option.name);
        it != settings.end() && it->second != option.default_value)
      text += fmt::format(" {}={}", option.name, it->second);
  return text;
}

Job job_of(const KernelEntry& entry, const NamedTexts& settings) {
  const Options options = entry.with_defaults(settings);
  return {job_text(entry, settings),
          [&entry, options](std::string_view target) { return entry.build(options, target); }};
}

std::vector<Job> jobs_of(const std::string& kernel, const NamedTexts& settings) {
  if (is_tile_file(kernel)) {
    if (!settings.empty()) throw UserError("--set: a .tile file has no options");
    return {{kernel, [loaded = load_tile(kernel)](std::string_view) { return loaded; }}};
  }
  const KernelEntry& entry = kernel_named(underscored(kernel));
  if (!settings.empty()) return {job_of(entry, settings)};
  std::vector<Job> jobs;
  for (const auto& shipped : entry.shipped) jobs.push_back(job_of(entry, shipped));
  return jobs;
}

std::vector<Job> jobs_of(const PrebuildOptions& options) {
  std::vector<std::string> kernels = options.kernels;
  if (kernels.empty() == !options.all)
    throw UserError(
        "prebuild: expected kernels or --all, got " + std::string(options.all ? "both" : "neither"),
        "kiln prebuild --arch sm_80,sm_90 --all");
  const NamedTexts settings = named("--set", options.set);
  if (!settings.empty() && kernels.size() != 1)
    throw UserError(fmt::format("--set: expected one kernel to set it of, got {}", kernels.size()));
  if (options.all)
    for (const KernelEntry& entry : kernel_registry()) kernels.push_back(entry.name);
  std::vector<Job> jobs;
  for (const std::string& kernel : kernels)
    for (Job& job : jobs_of(kernel, settings)) jobs.push_back(std::move(job));
  return jobs;
}

void print_line(const Job& job, const Artifact& made) {
  const std::string time =
      made.was_present ? "already there" : fmt::format("{:.1f} ms", made.milliseconds);
  fmt::print("{:60}  {:40}  {:>13}  {:8.1f} KiB\n", job.text, made.what, time,
             static_cast<double>(made.bytes) / 1024);
  std::fflush(stdout);
}

void prebuild(const PrebuildOptions& options) {
  for (const std::string& arch : options.archs)
    if (arch != "host") gpu_target(arch);  // for its error, before the work
  const std::vector<Job> jobs = jobs_of(options);
  const CacheLayers cache =
      options.out.empty()
          ? disk_cache()
          : CacheLayers({DiskCache(options.out, DiskCache::kUnlimited, DiskCache::Use::Shared)});
  int64_t made = 0, present = 0;
  for (const std::string& arch : options.archs)
    for (const Job& job : jobs)
      for (const Artifact& artifact :
           prepare(arch, job.build(arch == "host" ? host_target() : arch), cache)) {
        print_line(job, artifact);
        ++(artifact.was_present ? present : made);
      }
  fmt::print(stderr, "note: {} made, {} already there, in {}\n", made, present,
             cache.info().front().directory);
}

}  // namespace

void add_prebuild(CLI::App& app) {
  auto options = std::make_shared<PrebuildOptions>();
  CLI::App* command = app.add_subcommand("prebuild", "compile into the disk cache; needs no GPU");
  command->add_option("kernels", options->kernels,
                      "library kernels, in all shipped settings or those of --set; .tile files");
  command->add_option("--arch", options->archs, "GPUs' architectures, as sm_80; host is this CPU")
      ->type_name("SM,…")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->required();
  command->add_option("--set", options->set, "an option of the kernel")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_flag("--all", options->all, "all library kernels in all shipped settings");
  command
      ->add_option("--out", options->out,
                   "the directory to fill, readable by everybody, instead of the user's cache")
      ->type_name("DIR");
  add_without_option(*command);
  command->footer(
      "PTX always; with KILN_PTXAS cubins too, which machines without a ptxas then use. An\n"
      "architecture is what `kiln devices` shows that code is made for. Other machines find DIR "
      "by\n"
      "KILN_CACHE_DIR or, beside a cache of their own, KILN_CACHE_PATH.\n"
      "  kiln prebuild --arch sm_80,sm_90 --all --out image/kiln-cache\n"
      "  kiln prebuild --arch sm_90 block_sparse_attention --set head_dim=64 --set causal=true");
  command->callback([options] { prebuild(*options); });
}

}  // namespace kiln::cli
