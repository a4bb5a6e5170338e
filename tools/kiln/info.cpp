// kiln list, kiln devices, kiln cache: what there is.
#include <fmt/format.h>

#include <memory>

#include "ir/error.h"
#include "kernels/registry.h"
#include "runtime/cache.h"
#include "runtime/device.h"
#include "tools/kiln/commands.h"

namespace kiln::cli {
namespace {

void list() {
  for (const KernelEntry& entry : kernel_registry()) {
    fmt::print("{}\n    {}\n", entry.name, entry.summary);
    for (const OptionInfo& option : entry.options)
      fmt::print("    {:12} {} ({}), default {}\n", option.name, option.doc, option.legal,
                 option.default_value);
  }
}

void devices() {
  for (std::string_view name : device_names()) {
    Device& found = device(name);
    fmt::print("{:12} {}\n", found.name(), found.description());
  }
}

void cache_information() {
  CacheInfo info = cache_info();
  fmt::print("directory  {}\n", info.directory.empty() ? "none" : info.directory);
  fmt::print("in use     {}\n", info.problem.empty() ? "yes" : "no: " + info.problem);
  fmt::print("entries    {}\n", info.entries);
  fmt::print("size       {:.1f} of {:.0f} MiB\n", static_cast<double>(info.bytes) / (1 << 20),
             static_cast<double>(info.limit) / (1 << 20));
}

}  // namespace

void add_list(CLI::App& app) {
  app.add_subcommand("list", "the library's kernels and their options")->callback(list);
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
