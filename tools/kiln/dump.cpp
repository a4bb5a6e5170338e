// kiln dump and kiln opt: what the compiler makes of a kernel.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>

#include "codegen/host.h"
#include "ir/canon.h"
#include "ir/error.h"
#include "ir/layout/tile_layout.h"
#include "ir/print.h"
#include "ir/walk.h"
#include "passes/pipeline.h"
#include "runtime/explain.h"
#include "runtime/host_device.h"
#include "runtime/lowering.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"
#include "tools/kiln/gpu_code.h"

namespace kiln::cli {
namespace {

struct DumpOptions {
  std::string target, after, arch;
  std::vector<std::string> set;
  bool tile = false, llvm = false, assembly = false, locations = false, time = false;
  bool ptx = false, sass = false, layouts = false;

  // Is it the GPU tier's?
  bool gpu() const { return !arch.empty() || ptx || sass || layouts; }
  Tier tier() const { return gpu() ? Tier::Sm80 : Tier::Host; }
};

// The kernel after the named pass (its last run), or after all if the name is empty.
Kernel lowered(Kernel kernel, const DumpOptions& options) {
  std::vector<std::string> names = pass_names(options.tier());
  std::string after = underscored(options.after);
  if (!after.empty() && std::find(names.begin(), names.end(), after) == names.end())
    throw UserError(fmt::format("--after: the pipeline has no pass '{}'", after),
                    fmt::format("one of {}", fmt::join(names, ", ")));
  Kernel found;
  bool ran = false;
  PassOptions watching;
  watching.after_each = [&](const PassRun& run, const Kernel& now) {
    if (options.time)
      fmt::print(stderr, "{:24} {:8.3f} ms{}\n", run.name, run.milliseconds,
                 run.changed ? "" : "  unchanged");
    if (run.name != after) return;
    found = now;
    ran = true;
  };
  if (options.gpu()) {
    kernel = lowered_for_gpu(kernel, arch_for(kernel, options.arch), watching);
  } else {
    leave_out_passes(kernel);
    run_passes(kernel, passes_for(kernel, Tier::Host), watching);
  }
  if (!after.empty() && !ran)
    throw UserError(
        fmt::format("--after: pass '{}' does not run on kernel '{}', {}", after, kernel.name,
                    first_late_op(kernel) ? "which is scheduled already" : "it is left out"));
  return after.empty() ? kernel : found;
}

// Those of one text together.
void print_layouts(const Kernel& kernel) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<std::string>> places;
  walk(kernel, kernel.body, [&](OpId id) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Alloc && op.code != OpCode::Parallel) return;
    auto layout = layout_of(op);
    if (!layout) return;
    const std::string what = op.code == OpCode::Alloc ? str(kernel.type(op.result))
                                                      : "parallel " + str(op.ints("extents"));
    const std::string text = str(*layout);  // begins with the shape, as `what` ends
    std::string key = fmt::format("{}: {}", what, text.substr(text.find(": ") + 2));
    if (!places.contains(key)) order.push_back(key);
    std::vector<std::string>& here = places[std::move(key)];
    if (std::string at = place(op.loc); std::find(here.begin(), here.end(), at) == here.end())
      here.push_back(std::move(at));
  });
  fmt::print(
      "The element that a register of a lane of a warp holds, by its coordinate on each axis; or "
      "the\n"
      "offset of an element in shared memory, in elements. / and % as in C, ^ is exclusive or.\n");
  for (const std::string& key : order) {
    fmt::print("\n{}\n", key);
    for (const std::string& at : places[key])
      if (!at.empty()) fmt::print("  at {}\n", at);
  }
}

void dump(const DumpOptions& options) {
  Kernel kernel =
      load_kernel(options.target, named("--set", options.set),
                  options.gpu() ? arch_or_default(options.arch) : host_device().target());
  PrintOptions print_options{.locations = options.locations};
  if (options.assembly && options.gpu())
    throw UserError("--asm: of a CPU; --ptx and --sass are a GPU's");
  if (options.layouts) {
    print_layouts(lowered(std::move(kernel), options));
  } else if (options.ptx) {
    fmt::print("{}", compile_ptx(lowered(std::move(kernel), options)).ptx);
  } else if (options.sass) {
    Kernel last = lowered(std::move(kernel), options);
    fmt::print("{}", sass_of(compile_ptx(last), last.target));
  } else if (options.llvm || options.assembly) {
    Kernel last = lowered(std::move(kernel), options);
    fmt::print("{}", options.assembly ? host_assembly(last)
                     : options.gpu()  ? gpu_llvm_ir(last)
                                      : host_llvm_ir(last));
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
  what->add_option("--after", options->after, "as .tile text after a pass of the pipeline")
      ->type_name("PASS");
  what->add_flag("--llvm", options->llvm, "optimised LLVM IR");
  what->add_flag("--asm", options->assembly, "assembly for this CPU");
  what->add_flag("--ptx", options->ptx, "PTX");
  what->add_flag("--sass", options->sass, "a GPU's machine code (needs a CUDA toolkit's tools)");
  what->add_flag("--layouts", options->layouts, "which thread holds which element of each tile");
  what->require_option(0, 1);
  command
      ->add_option(
          "--arch", options->arch,
          "for a GPU: sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100 or sm_120; if not given, --ptx, "
          "--sass and --layouts are for this GPU, sm_90 without one")
      ->type_name("SM");
  add_without_option(*command);
  command->add_flag("--locations", options->locations, "with the source line of each op");
  command->add_flag("--time", options->time, "the time of each pass, on stderr");
  command->footer(fmt::format(
      "Passes of the host pipeline, in order: {}. With --arch: {}.\n"
      "  kiln dump block_sparse_attention --set head_dim=64 --tile > k.tile\n"
      "  kiln dump k.tile --after lower_selected\n"
      "  kiln dump row_softmax --ptx --arch sm_80",
      fmt::join(pass_names(Tier::Host), ", "), fmt::join(pass_names(Tier::Sm80), ", ")));
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
