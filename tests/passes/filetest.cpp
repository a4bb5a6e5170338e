// Runs every tests/files/**/*.tile. A file says in comments what is to be done with it:
//   // RUN: a,b             runs the passes; `host` and `sm80` stand for a tier's pipeline
//   // TARGET: sm_80        the GPU that they are for; sm_90 if not said and there is a GPU's pass
//   // CHECK: …             FileCheck on the result. Without the pass that the folder is named
//   after
//                          (without all, if it is not named after one) the checks must fail.
//   // NO-CHANGE            instead: the passes must leave the kernel as it is
//   // EXEC: n=37 x=0.5     interprets before and after on random inputs of these dims and params
//     tolerance=1e-6        (bit for bit without one); several lines are several runs. A kernel of
//     orders=50             the late IR also runs with its asynchronous ops late, with its roles in
//                           reverse, and in so many random orders (4), and all must agree
//   … // ERROR: text        parsing, verifying or a pass fails at this line with this text
// Whatever parses must also print to a text that parses to the same text.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/pipeline.h"
#include "tests/passes/filecheck.h"
#include "tests/support/random_bindings.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

struct Run {
  std::map<std::string, double> values;
  std::optional<double> tolerance;
  uint64_t orders = 4;
};

struct File {
  std::string text;
  std::vector<Pass> passes;
  std::string target;
  std::vector<Run> runs;
  bool has_checks = false, no_change = false;
  std::string error;
  int error_line = 0;
};

// What follows a keyword on a line, or nothing.
std::optional<std::string> after(const std::string& line, const std::string& keyword) {
  size_t at = line.find("// " + keyword);
  if (at == std::string::npos) return std::nullopt;
  std::string rest = line.substr(at + 3 + keyword.size());
  rest.erase(0, std::min(rest.find_first_not_of(' '), rest.size()));
  return rest.substr(0, rest.find_last_not_of(' ') + 1);
}

std::vector<Pass> passes_of(const std::string& list) {
  std::vector<Pass> passes;
  std::istringstream in(list);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == "host" || name == "sm80") {
      const auto& tier = pipeline_for(name == "host" ? Tier::Host : Tier::Sm80);
      passes.insert(passes.end(), tier.begin(), tier.end());
    } else {
      passes.push_back(pass_named(name));
    }
  }
  return passes;
}

// Of the GPU tier's pipeline only.
bool is_for_gpus(const Pass& pass) {
  auto in = [&](Tier tier) {
    const auto& passes = pipeline_for(tier);
    return std::any_of(passes.begin(), passes.end(),
                       [&](const Pass& other) { return other.name == pass.name; });
  };
  return in(Tier::Sm80) && !in(Tier::Host);
}

Run run_of(const std::string& list) {
  Run run;
  std::istringstream in(list);
  for (std::string item; in >> item;) {
    size_t equals = item.find('=');
    if (equals == std::string::npos) throw UserError("EXEC: expected name=value, got " + item);
    double value = std::stod(item.substr(equals + 1));
    if (item.substr(0, equals) == "tolerance") {
      run.tolerance = value;
    } else if (item.substr(0, equals) == "orders") {
      run.orders = static_cast<uint64_t>(value);
    } else {
      run.values[item.substr(0, equals)] = value;
    }
  }
  return run;
}

File read(const fs::path& path) {
  File file;
  std::ifstream in(path);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    file.text += line + "\n";
    if (auto list = after(line, "RUN:")) file.passes = passes_of(*list);
    if (auto name = after(line, "TARGET:")) file.target = *name;
    if (auto list = after(line, "EXEC:")) file.runs.push_back(run_of(*list));
    if (after(line, "CHECK")) file.has_checks = true;
    if (after(line, "NO-CHANGE")) file.no_change = true;
    if (auto text = after(line, "ERROR:")) {
      file.error = *text;
      file.error_line = number;
    }
  }
  const bool for_gpus = std::any_of(file.passes.begin(), file.passes.end(), is_for_gpus);
  if (file.target.empty() && for_gpus) file.target = "sm_90";
  return file;
}

Kernel kernel_of(const File& file, const std::string& name) {
  Kernel kernel = parse(file.text, name);
  if (!file.target.empty()) kernel.target = file.target;
  return kernel;
}

testing::RandomBindings inputs_for(const Kernel& kernel, const Run& run,
                                   const testing::RandomOptions& options) {
  std::map<std::string, int64_t> dims;
  std::map<std::string, Scalar> params;
  size_t known = 0;
  for (OpId id : kernel.region(kernel.body).ops) {
    const Op& op = kernel.op(id);
    if (op.code != OpCode::Dim && op.code != OpCode::Param) continue;
    auto given = run.values.find(op.word("name"));
    if (given == run.values.end()) continue;
    ++known;
    if (op.code == OpCode::Dim) dims[given->first] = static_cast<int64_t>(given->second);
    if (op.code == OpCode::Param) params[given->first] = Scalar::of_float(F64, given->second);
  }
  if (known != run.values.size()) throw UserError("EXEC names something the kernel does not have");
  return testing::RandomBindings(kernel, dims, params, options);
}

// Has ops whose moment of effect, or agents whose order, is open.
bool is_late(const Kernel& kernel) {
  bool late = false;
  walk(kernel, kernel.body, [&](OpId id) {
    const OpCode code = kernel.op(id).code;
    late |= code >= OpCode::Roles && code <= OpCode::NextTile;
  });
  return late;
}

void expect_one_result_in_all_modes(const Kernel& kernel, const testing::RandomBindings& inputs,
                                    testing::RandomBindings& expected, const Run& run) {
  using Async = InterpOptions::Async;
  std::vector<InterpOptions> modes;
  for (bool reverse : {false, true})
    for (Async async : {Async::Eager, Async::Lazy})
      modes.push_back({.reverse_blocks = reverse, .reverse_agents = reverse, .async = async});
  for (uint64_t seed = 1; seed <= run.orders; ++seed)
    modes.push_back({.async = Async::Random, .seed = seed});
  for (const InterpOptions& mode : modes) {
    testing::RandomBindings actual = inputs;
    INFO("mode " << static_cast<int>(mode.async) << ", reversed " << mode.reverse_agents
                 << ", order " << mode.seed);
    interpret(kernel, actual.bindings(), mode);
    CHECK(actual.damage() == "");
    CHECK(actual.difference(expected, run.tolerance) == "");
  }
}

void expect_same_results(const Kernel& before, const Kernel& after, const Run& run) {
  for (uint64_t seed : {1, 2}) {
    testing::RandomOptions options;
    options.seed = seed;
    options.integers = seed == 1;
    const testing::RandomBindings inputs = inputs_for(before, run, options);
    testing::RandomBindings expected = inputs, actual = inputs;
    interpret(before, expected.bindings());
    interpret(after, actual.bindings());
    CHECK(expected.damage() == "");
    CHECK(actual.damage() == "");
    CHECK(actual.difference(expected, run.tolerance) == "");
    if (is_late(before)) expect_one_result_in_all_modes(before, inputs, expected, run);
  }
}

void expect_error(const File& file, const std::string& name) {
  try {
    Kernel kernel = kernel_of(file, name);
    run_passes(kernel, file.passes, {.verify_each = true, .after_each = {}});
  } catch (const UserError& error) {
    CHECK(error.loc().line == file.error_line);
    CHECK_THAT(error.what(), Catch::Matchers::Contains(file.error));
    return;
  }
  FAIL("expected the error: " << file.error);
}

void expect_round_trip(const Kernel& kernel) {
  std::string text = print(kernel);
  CHECK(print(parse(text)) == text);
}

// The passes with the one that the file is about replaced by the identity; none if it is about all.
std::vector<Pass> all_but(const std::string& name, std::vector<Pass> passes) {
  if (std::erase_if(passes, [&](const Pass& pass) { return pass.name == name; }) == 0) return {};
  return passes;
}

void run_file(const fs::path& path) {
  File file = read(path);
  if (file.error_line) return expect_error(file, path.filename().string());
  Kernel before = kernel_of(file, path.filename().string());
  verify(before);
  expect_round_trip(before);
  Kernel after = before;
  run_passes(after, file.passes, {.verify_each = true, .after_each = {}});
  expect_round_trip(after);

  std::string report;
  if (file.has_checks && !testing::file_check(file.text, print(after), report))
    FAIL_CHECK(report << "\nthe output was:\n" << print(after));
  if (file.no_change) {
    CHECK(print(after) == print(before));
  } else if (!file.passes.empty()) {
    REQUIRE(file.has_checks);
    Kernel without = before;
    run_passes(without, all_but(path.parent_path().filename().string(), file.passes));
    std::string ignored;
    INFO("the checks hold without the pass: they test nothing");
    CHECK_FALSE(testing::file_check(file.text, print(without), ignored));
  }
  for (const Run& run : file.runs) expect_same_results(before, after, run);
}

std::vector<fs::path> tile_files() {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(KILN_TESTS_DIR) / "files"))
    if (entry.path().extension() == ".tile") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

TEST_CASE("every pass has files that check its structure and its results") {
  for (const Pass& pass : all_passes()) {
    int checked = 0, executed = 0;
    for (const fs::path& path : tile_files()) {
      if (path.parent_path().filename() != pass.name) continue;
      File file = read(path);
      checked += file.has_checks;
      executed += !file.runs.empty();
    }
    INFO(pass.name);
    CHECK(checked >= 2);
    CHECK(executed >= 2);
  }
}

TEST_CASE("tile files") {
  for (const fs::path& path : tile_files())
    DYNAMIC_SECTION(fs::relative(path, KILN_TESTS_DIR).string()) {
      run_file(path);
    }
}

}  // namespace
}  // namespace kiln
