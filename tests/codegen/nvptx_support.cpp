#include "tests/codegen/nvptx_support.h"

#include <cstdlib>

#include "ir/canon.h"
#include "passes/pipeline.h"
#include "runtime/emulator_device.h"

namespace kiln::testing {

Kernel lowered(Kernel kernel, const std::string& target) {
  kernel.target = target;
  run_passes(kernel, passes_for(kernel, Tier::Sm80), {.verify_each = true, .after_each = {}});
  return kernel;
}

GpuCode compile_for(const Kernel& kernel, const std::string& target) {
  return compile_ptx(lowered(kernel, target));
}

size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++count;
  return count;
}

std::string emulation_fault(const Kernel& kernel, const std::string& target, const Check& check) {
  setenv("KILN_CACHE", "off", 1);  // random programs are not worth keeping
  RandomBindings expected(kernel, check.dims, check.params, check.options), actual = expected;
  interpret(kernel, expected.bindings());
  const std::unique_ptr<Executable> code = emulator_device(target).compile(canonical(kernel));
  ptx::Options options;
  options.async = ptx::AsyncMode::AtLatest;
  for (const ptx::Report& report : emulate(*code, actual.bindings(), options))
    if (!report.findings.empty()) return report.findings[0].text();
  const std::string damage = actual.damage();
  return damage.empty() ? actual.difference(expected, check.tolerance) : damage;
}

}  // namespace kiln::testing
