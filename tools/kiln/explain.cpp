// kiln explain: what the compiler chose for a GPU, and why.
#include <fmt/format.h>

#include <memory>

#include "runtime/explain.h"
#include "runtime/lowering.h"
#include "tools/kiln/commands.h"
#include "tools/kiln/common.h"
#include "tools/kiln/explain_parts.h"
#include "tools/kiln/gpu_code.h"

namespace kiln::cli {
namespace {

struct ExplainOptions {
  std::string target;
  std::vector<std::string> archs, set;
  bool conflicts = false;
};

void explain(const ExplainOptions& options, const std::string& given) {
  const NamedTexts settings = named("--set", options.set);
  const Kernel kernel = load_kernel(options.target, settings, arch_or_default(given));
  const std::string arch = arch_for(kernel, given);
  Kernel with_passes = kernel;
  leave_out_passes(with_passes);
  fmt::print("{}", kiln::explain(with_passes, arch));
  if (options.conflicts) print_conflicts(options.target, settings, kernel, arch);
}

}  // namespace

void add_explain(CLI::App& app) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command = app.add_subcommand("explain", "what the compiler chooses for a GPU, and why");
  command->add_option("target", options->target, "a library kernel or a .tile file")->required();
  command->add_option("--set", options->set, "an option of the kernel")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      ->add_option("--arch", options->archs,
                   "GPU architectures, as sm_80,sm_90; this GPU's if not given, sm_90 without one")
      ->type_name("SM[,SM]")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_flag("--conflicts", options->conflicts,
                    "run a block in the emulator: bank conflicts and sectors of each line");
  add_without_option(*command);
  command->footer("  kiln explain block_sparse_attention --set head_dim=64 --arch sm_80");
  command->callback([options] {
    if (options->archs.empty()) options->archs.push_back("");
    for (const std::string& arch : options->archs) explain(*options, arch);
  });
}

}  // namespace kiln::cli
