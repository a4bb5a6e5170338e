#include "tests/kernels/entry_case.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/registry.h"
#include "tests/kernels/attention_case.h"
#include "tests/support/on_device.h"

namespace kiln::test {

void check_entry(Device& device, const EntryRun& run,
                 const std::map<std::string, AccuracyRule>& rules) {
  const KernelEntry& entry = kernel_named(run.kernel);
  const Options options = entry.with_defaults(run.settings);
  const Function compiled = compile(device, entry.build(options, device.target()));
  Arguments arguments = run.arguments;
  for (const auto& [param, value] : entry.default_params(options))
    if (!arguments.params().contains(param)) arguments.param(param, value);
  for (const auto& [name, array] : run.outputs) {
    fill(*array, array->dtype() == Bool ? 1 : 77);
    arguments.tensor(name, *array);
  }
  const Bindings bindings = bind(compiled.signature(), arguments);
  entry.check(options, bindings);
  kiln::testing::run_on(device, *compiled.executable(), bindings);
  for (const auto& [name, expected] : entry.reference(options, bindings)) {
    const Array& got = *run.outputs.at(name);
    const auto rule = rules.find(name);
    const Comparison result =
        compare(got.values(), expected, std::max<int64_t>(got.shape().back(), 1),
                rule == rules.end() ? AccuracyRule{} : rule->second);
    INFO(run.kernel << " on " << device.name() << ": " << name << ": " << result.str());
    CHECK(result.ok());
  }
  CHECK(entry.work(options, bindings).bytes >= 0);
}

std::vector<std::string> devices_and_emulator(bool interpreter) {
  std::vector<std::string> names;
  for (std::string_view name : devices())
    if (interpreter || name != "interpreter") names.emplace_back(name);
  if (names.front() == "host") names.emplace_back("emulator");
  return names;
}

}  // namespace kiln::test
