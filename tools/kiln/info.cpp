// kiln list, kiln devices, kiln cache: what there is.
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "ir/error.h"
#include "kernels/registry.h"
#include "runtime/cache.h"
#include "runtime/cuda_device.h"
#include "runtime/device.h"
#include "runtime/signature.h"
#include "tools/kiln/commands.h"

namespace kiln::cli {
namespace {

// Options, then what a call binds; shapes and dtypes are those of the default options.
void list() {
  for (const KernelEntry& entry : kernel_registry()) {
    fmt::print("{}\n    {}\n  options\n", entry.name, entry.summary);
    for (const OptionInfo& option : entry.options)
      fmt::print("    {:12} {} ({}), default {}\n", option.name, option.doc, option.legal,
                 option.default_value.empty() ? "empty" : option.default_value);
    fmt::print("  arguments, with these defaults\n");
    Signature signature(
        std::make_shared<const Kernel>(entry.build(entry.with_defaults({}), "host")));
    for (const TensorInfo& tensor : signature.tensors())
      fmt::print("    {:12} {}: {}\n", tensor.name, tensor.written() ? "output" : "input",
                 tensor.text());
    for (const ParamInfo& param : signature.params())
      fmt::print("    {:12} param: {}\n", param.name, name(param.dtype));
  }
}

void devices() {
  for (const std::string& name : usable_devices()) {
    Device& found = device(name);
    fmt::print("{:12} {}\n", found.name(), found.description());
  }
  try {
    for (int i = 0; i < cuda::device_count(); ++i) {
      const cuda::DeviceProperties gpu = cuda::device_properties(i);
      fmt::print("\ngpu {}: {}{}\n{}", i, gpu.text(), gpu.usable() ? "" : " (too old)",
                 cuda_limits(gpu));
    }
  } catch (const DeviceError& error) {
    fmt::print(stderr, "note: no GPU: {}\n", error.message());
  }
}

void cache_information() {
  const char* between = "";
  for (const CacheInfo& info : cache_info()) {
    const auto mebibytes = [](uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    fmt::print("{}directory  {}\n", std::exchange(between, "\n"),
               info.directory.empty() ? "none" : info.directory);
    fmt::print("in use     {}\n", !info.problem.empty() ? "no: " + info.problem
                                  : info.writable       ? "yes"
                                                        : "yes, read-only: entries are loaded, "
                                                          "none is added or removed");
    fmt::print("entries    {}\n", info.entries);
    fmt::print("size       {:.1f}{} MiB\n", mebibytes(info.bytes),
               info.writable ? fmt::format(" of {:.0f}", mebibytes(info.limit)) : "");
  }
}

}  // namespace

void add_list(CLI::App& app) {
  app.add_subcommand("list", "the library's kernels, their options and arguments")->callback(list);
}

void add_devices(CLI::App& app) {
  app.add_subcommand("devices", "where kernels can run on this machine")->callback(devices);
}

void add_cache(CLI::App& app) {
  CLI::App* command = app.add_subcommand("cache", "the cache of compiled kernels on disk");
  command->require_subcommand(1);
  command->add_subcommand("info", "where it is, how full it is")->callback(cache_information);
  command->add_subcommand("clear", "remove all of its entries")->callback([] {
    fmt::print("removed {} entries\n", cache_clear());
  });
}

}  // namespace kiln::cli
