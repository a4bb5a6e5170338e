#include "tests/codegen/nvptx_support.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ir/canon.h"
#include "passes/pipeline.h"
#include "runtime/emulator_device.h"

namespace kiln::testing {
namespace {

namespace fs = std::filesystem;

// A folder of this process, removed at its end.
const fs::path& folder() {
  struct Folder {
    fs::path path = fs::temp_directory_path() / ("kiln_ptx_" + std::to_string(getpid()));
    Folder() { fs::create_directories(path); }
    ~Folder() {
      std::error_code ignored;
      fs::remove_all(path, ignored);
    }
  };
  static const Folder made;
  return made.path;
}

bool has_ptxas() {
  static const bool found = [] {
    const bool runs = std::system("ptxas --version > /dev/null 2>&1") == 0;
    if (!runs) std::cerr << "no ptxas on PATH: PTX is not assembled\n";
    return runs;
  }();
  return found;
}

}  // namespace

Kernel lowered(Kernel kernel, const std::string& target) {
  kernel.target = target;
  run_passes(kernel, pipeline_for(Tier::Sm80), {.verify_each = true, .after_each = {}});
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

std::string assembly_fault(const std::string& ptx, const std::string& target) {
  if (!has_ptxas()) return "";
  const fs::path source = folder() / "kernel.ptx", log = folder() / "log";
  std::ofstream(source) << ptx;
  const std::string command = "ptxas -v -arch=" + target + " -o /dev/null " + source.string() +
                              " > " + log.string() + " 2>&1";
  const bool assembled = std::system(command.c_str()) == 0;
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  const std::string said = text.str();
  if (!assembled || said.find("C75") != std::string::npos) return said;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("spill") != std::string::npos &&
        line.find("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads") ==
            std::string::npos)
      return line;
    if (line.find("lmem") != std::string::npos) return line;
  }
  return "";
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
