// Differential fuzzing: random tile programs run on devices, on the interpreter, and on the
// interpreter after random passes, and must agree bit for bit. A failure is reduced and written as
// a `.tile` file that this program replays.
#include "tests/differential/differential.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <sstream>
#include <thread>

#include "tests/differential/check.h"
#include "tests/differential/coverage.h"
#include "tests/differential/jobs.h"
#include "tests/differential/reducer.h"

namespace kiln::differential {
namespace {

constexpr size_t kTogether = 16;  // programs in one child process
constexpr int kMostFailures = 5;  // of one process, which then stops

struct Options {
  int programs = 1000, jobs = 0;
  uint64_t seed = std::random_device{}();
  std::string directory = ".";
  std::vector<std::string> files, devices{"host"};
  bool print_only = false, one_at_a_time = false;
};

// What came of one process's share.
struct Result {
  int passed = 0, failed = 0;
  Coverage coverage;  // of generated programs

  std::string text() const { return fmt::format("{} {} {}", passed, failed, coverage.text()); }
  void add(const std::string& text) {
    std::istringstream in(text);
    int passed_there = 0, failed_there = 0;
    in >> passed_there >> failed_there;
    passed += passed_there, failed += failed_there;
    coverage.add(Coverage::parse(text.substr(static_cast<size_t>(in.tellg()))));
  }
};

// Reports and reduces a failing case.
void report(const Case& c, const std::string& wrong, const Targets& targets,
            const std::string& directory) {
  fmt::print("seed {}: {}\n", c.seed, wrong);
  std::fflush(stdout);
  const Case reduced = {reduce(c.program,
                               [&](const Program& candidate) {
                                 return !check_reduced({candidate, c.seed}, targets).empty();
                               }),
                        c.seed};
  std::string path = fmt::format("{}/failure-{}.tile", directory, c.seed);
  std::ofstream(path) << text_of(reduced);
  fmt::print("pass that changes the result: {}\nreduced to {}: {}\n{}\n", guilty_pass(reduced),
             path, check(reduced, targets), text_of(reduced));
  std::fflush(stdout);
}

// Every `step`th case from `first` on: the files, then the seeds.
Result run_share(const Options& options, const Targets& targets, size_t first, size_t step) {
  Result result;
  std::vector<Case> waiting;
  auto run_waiting = [&] {
    if (waiting.empty()) return;
    const bool all_right = check(waiting, targets).empty();
    for (const Case& c : waiting) {
      std::string wrong = all_right ? "" : check(c, targets);
      ++(wrong.empty() ? result.passed : result.failed);
      if (!wrong.empty()) report(c, wrong, targets, options.directory);
    }
    waiting.clear();
  };
  const size_t files = options.files.size();
  const size_t cases = files + static_cast<size_t>(options.programs);
  for (size_t i = first; i < cases && result.failed < kMostFailures; i += step) {
    if (i < files) {
      waiting.push_back(read_case(options.files[i]));
    } else {
      const uint64_t seed = options.seed + (i - files);
      waiting.push_back({generate(seed), seed});
      result.coverage.add(waiting.back().program.kernel);
    }
    if (waiting.size() == kTogether) run_waiting();
  }
  run_waiting();
  return result;
}

void print_programs(const Options& options) {
  for (const std::string& path : options.files) fmt::print("{}", text_of(read_case(path)));
  for (int i = 0; i < options.programs; ++i) {
    const uint64_t seed = options.seed + static_cast<uint64_t>(i);
    fmt::print("{}", text_of({generate(seed), seed}));
  }
}

// Folders replaced by the cases in them.
std::vector<std::string> all_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".tile") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int run_all(const Options& options, const Targets& targets) {
  fmt::print("{} files, then {} programs from seed {}, interpreter against {}\n",
             options.files.size(), options.programs, options.seed,
             fmt::join(options.devices, ", "));
  int jobs = options.jobs;
  if (jobs <= 0) jobs = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (!targets.gpus.empty()) jobs = 1;  // a GPU's context does not survive a fork
  const auto step = static_cast<size_t>(jobs);
  Result all;
  for (const std::string& text : in_processes(jobs, [&](int job) {
         return run_share(options, targets, static_cast<size_t>(job), step).text();
       }))
    all.add(text);
  fmt::print("{}", all.coverage.table());
  std::vector<std::string> missed;
  if (options.programs >= kJudged && all.failed == 0) missed = all.coverage.missed();
  for (const std::string& what : missed) fmt::print("covered too seldom: {}\n", what);
  fmt::print("{} passed, {} failed\n", all.passed, all.failed);
  return all.failed == 0 && missed.empty() ? 0 : 1;
}

}  // namespace

std::string check_seed(uint64_t seed, const std::vector<std::string>& devices) {
  return check(Case{generate(seed), seed}, targets_named(devices));
}

int run(int argc, char** argv) {
  CLI::App app{"Random tile programs on devices and on the interpreter"};
  Options options;
  app.add_option("--programs", options.programs, "how many");
  app.add_option("--seed", options.seed, "of the first program; the others follow");
  app.add_option("--device", options.devices,
                 "compared with the interpreter: NAME[,NAME…], also emulator-latest")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--out", options.directory, "where reduced failures are written");
  app.add_option("--jobs", options.jobs, "processes, one a core if 0; with a GPU always 1");
  app.add_flag("--print", options.print_only, "print the programs instead of running them");
  app.add_flag("--serial", options.one_at_a_time, "on a GPU, one program at a time");
  app.add_option("files", options.files, "cases to replay first: files, or folders of them");
  CLI11_PARSE(app, argc, argv);
  options.files = all_files(options.files);
  if (options.print_only) return print_programs(options), 0;
  Targets targets = targets_named(options.devices);
  targets.one_at_a_time = options.one_at_a_time;
  return run_all(options, targets);
}

}  // namespace kiln::differential
