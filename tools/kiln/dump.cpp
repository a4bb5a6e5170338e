// kiln dump and kiln opt: what the compiler makes of a kernel.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "codegen/host.h"
#include "ir/canon.h"
#include "ir/error.h"
#include "ir/print.h"
#include "passes/pipeline.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"

namespace kiln::cli {
namespace {

struct DumpOptions {
  std::string target, after;
  std::vector<std::string> set;
  bool tile = false, llvm = false, assembly = false, locations = false, time = false;
};

Kernel target_kernel(const DumpOptions& options) {
  NamedTexts settings = named("--set", options.set);
  if (!is_tile_file(options.target)) {
    const KernelEntry& entry = kernel_named(underscored(options.target));
    return canonical(entry.build(entry.with_defaults(settings)));
  }
  if (!settings.empty()) throw UserError("--set: a .tile file has no options");
  return canonical(load_tile(options.target));
}

// The host's passes in order, those that run again once.
std::vector<std::string> pipeline_names() {
  std::vector<std::string> names;
  for (const Pass& pass : pipeline_for(Tier::Host))
    if (std::find(names.begin(), names.end(), pass.name) == names.end())
      names.emplace_back(pass.name);
  return names;
}

// The kernel after the named pass (its last run), or after all if the name is empty.
Kernel lowered(Kernel kernel, const DumpOptions& options) {
  const std::vector<Pass>& passes = pipeline_for(Tier::Host);
  std::vector<std::string> names = pipeline_names();
  std::string after = underscored(options.after);
  if (!after.empty() && std::find(names.begin(), names.end(), after) == names.end())
    throw UserError(fmt::format("--after: the pipeline has no pass '{}'", after),
                    fmt::format("one of {}", fmt::join(names, ", ")));
  Kernel found;
  run_passes(kernel, passes, {.after_each = [&](const PassRun& run, const Kernel& now) {
               if (options.time)
                 fmt::print(stderr, "{:24} {:8.3f} ms{}\n", run.name, run.milliseconds,
                            run.changed ? "" : "  unchanged");
               if (run.name == after) found = now;
             }});
  return after.empty() ? kernel : found;
}

void dump(const DumpOptions& options) {
  Kernel kernel = target_kernel(options);
  PrintOptions print_options{.locations = options.locations};
  if (options.llvm || options.assembly) {
    Kernel last = lowered(std::move(kernel), options);
    fmt::print("{}", options.llvm ? host_llvm_ir(last) : host_assembly(last));
  } else if (!options.after.empty()) {
    fmt::print("{}", print(lowered(std::move(kernel), options), print_options));
  } else {
    fmt::print("{}", print(kernel, print_options));
  }
}

struct OptOptions {
  std::string file;
  std::vector<std::string> passes;
  bool locations = false;
};

void opt(const OptOptions& options) {
  Kernel kernel = load_tile(options.file);
  std::vector<Pass> passes;
  for (const std::string& name : options.passes) passes.push_back(pass_named(underscored(name)));
  run_passes(kernel, passes, {.verify_each = true});
  fmt::print("{}", print(kernel, {.locations = options.locations}));
}

}  // namespace

void add_dump(CLI::App& app) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* command = app.add_subcommand("dump", "print a kernel at any stage of compilation");
  command->add_option("target", options->target, "a library kernel or a .tile file")->required();
  command->add_option("--set", options->set, "an option of the kernel")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  CLI::Option_group* what = command->add_option_group("What to print");
  what->add_flag("--tile", options->tile, "the kernel as traced (the default): a .tile file");
  what->add_option("--after", options->after, "as .tile text after a pass of the host pipeline")
      ->type_name("PASS");
  what->add_flag("--llvm", options->llvm, "optimised LLVM IR for this CPU");
  what->add_flag("--asm", options->assembly, "assembly for this CPU");
  what->require_option(0, 1);
  command->add_flag("--locations", options->locations, "with the source line of each op");
  command->add_flag("--time", options->time, "the time of each pass, on stderr");
  command->footer(
      fmt::format("Passes of the host pipeline, in order: {}.\n"
                  "  kiln dump block_sparse_attention --set dim=64 --tile > k.tile\n"
                  "  kiln dump k.tile --after lower_selected",
                  fmt::join(pipeline_names(), ", ")));
  command->callback([options] { dump(*options); });
}

void add_opt(CLI::App& app) {
  auto options = std::make_shared<OptOptions>();
  CLI::App* command = app.add_subcommand("opt", "run chosen passes on a .tile file and print it");
  command->add_option("file", options->file, "a .tile file")->required();
  std::string names;
  for (const Pass& pass : all_passes())
    names += fmt::format("  {:24} {}\n", pass.name, pass.summary);
  command->add_option("--passes", options->passes, "passes in order")
      ->type_name("A,B,…")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--locations", options->locations, "with the source line of each op");
  command->footer("Passes:\n" + names);
  command->callback([options] { opt(*options); });
}

}  // namespace kiln::cli
