// kiln call KERNEL: any library kernel on files.
#include <memory>

#include "tools/kiln/commands.h"
#include "tools/kiln/execute.h"

namespace kiln::cli {
namespace {

struct CallOptions {
  std::string kernel;
  std::vector<std::string> set, in, out;
  DeviceChoice device;
  EmulatorChoice emulator;
};

void call(const CallOptions& options) {
  const KernelEntry& entry = kernel_named(underscored(options.kernel));
  Settings settings = split_settings(entry, named("--set", options.set));
  Options chosen = entry.with_defaults(settings.options);
  Device& where = chosen_device(options.device, options.emulator);
  Kernel kernel = entry.build(chosen, where.target());
  Signature signature(std::make_shared<const Kernel>(kernel));
  Arguments arguments;
  for (const auto& [name, value] : entry.default_params(chosen)) arguments.param(name, value);
  add_launch_settings(signature, settings.launch, arguments);
  run_on_files(kernel,
               {named("--in", options.in), named("--out", options.out), where, options.emulator},
               arguments, [&](const Bindings& bindings) { entry.check(chosen, bindings); });
}

}  // namespace

void add_call(CLI::App& app) {
  auto options = std::make_shared<CallOptions>();
  CLI::App* command = app.add_subcommand("call", "run a library kernel on .npy files");
  command->add_option("kernel", options->kernel, "its name; `kiln list` shows all")->required();
  command->add_option("--set", options->set, "an option, dim or param of the kernel")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command->add_option("--in", options->in, "an input (bf16 is V2 or its bits as uint16)")
      ->type_name("NAME=FILE.npy")
      ->allow_extra_args(false);
  command->add_option("--out", options->out, "where to write an output")
      ->type_name("NAME=FILE.npy")
      ->allow_extra_args(false);
  add_device_options(*command, options->device);
  add_emulator_options(*command, options->emulator);
  add_without_option(*command);
  command->footer(
      "`kiln list` tells each kernel's options, inputs and outputs. Extents come from the inputs;\n"
      "`scale` of attention is 1/sqrt(head_dim) unless set.\n"
      "  kiln call matmul --in a=a.npy --in b=b.npy --set dtype=f32 --out c=c.npy");
  command->callback([options] { call(*options); });
}

}  // namespace kiln::cli
