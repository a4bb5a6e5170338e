// Every conformance snippet on the emulator, and through ptxas where there is one.
#include "tests/conformance/snippet.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "tests/ptx/support.h"

namespace kiln::ptx {
namespace {

using conformance::Snippet;

const std::vector<Snippet>& snippets() {
  static const std::vector<Snippet> all = conformance::all_snippets();
  return all;
}

// What is wrong, or "".
std::string failure(const Snippet& snippet, AsyncMode mode) {
  std::vector<uint64_t> input = snippet.input, output(snippet.expected.size());
  input.resize(std::max<size_t>(input.size(), 1));
  Memory memory;
  memory.add(input.data(), 8 * input.size(), "input", false);
  memory.add(output.data(), 8 * output.size(), "output");
  Options options;
  options.async = mode;
  try {
    Parameters parameters;
    parameters.add(input.data()).add(output.data());
    Report report =
        launch(parse(snippet.ptx()), snippet.entry, {1}, {static_cast<uint32_t>(snippet.threads)},
               0, parameters.bytes(), memory, options);
    if (!report.findings.empty()) return snippet.name + ": " + findings(report);
  } catch (const Error& error) {
    return snippet.name + ": " + error.what();
  }
  return conformance::mismatch(snippet, output).value_or("");
}

TEST_CASE("conformance: the emulator gives what the manual prescribes") {
  CHECK(snippets().size() >= 450);
  for (const Snippet& snippet : snippets())
    for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest, AsyncMode::Random}) {
      const bool asynchronous = snippet.text.find("async") != std::string::npos;
      if (mode != AsyncMode::AtIssue && !asynchronous) continue;
      CHECK(failure(snippet, mode) == "");
    }
}

TEST_CASE("conformance: a wrong result is noticed") {
  size_t checked = 0;
  for (Snippet snippet : snippets()) {
    std::vector<uint64_t> output = snippet.expected;
    CHECK(!conformance::mismatch(snippet, output));
    if (snippet.element != conformance::Element::Bits) continue;
    output.back() ^= 1;
    CHECK(conformance::mismatch(snippet, output));
    ++checked;
  }
  CHECK(checked > 100);
}

TEST_CASE("conformance: ptxas takes every snippet") {
  if (std::system("command -v ptxas > /dev/null 2>&1") != 0) {
    WARN("no ptxas: not tested");
    return;
  }
  std::map<std::string, std::string> modules;
  for (const Snippet& snippet : snippets()) {
    const char* suffix = snippet.architecture_only ? "a" : "";
    std::string& text = modules[std::to_string(snippet.target) + suffix];
    if (text.empty()) text = conformance::header(snippet.target, snippet.architecture_only);
    text += snippet.text;
  }
  auto file = std::filesystem::temp_directory_path() /
              ("kiln-conformance-" + std::to_string(std::random_device{}()) + ".ptx");
  for (const auto& [target, text] : modules) {
    std::ofstream(file) << text;
    INFO("sm_" << target);
    CHECK(std::system(
              ("ptxas -O1 -arch=sm_" + target + " " + file.string() + " -o /dev/null").c_str()) ==
          0);
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace kiln::ptx
