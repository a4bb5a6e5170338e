// Differential fuzzing: random tile programs run on a device and on the interpreter, which must
// agree bit for bit. A failure is reduced and written as a `.tile` file that this program replays.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "tests/differential/generator.h"
#include "tests/differential/reducer.h"
#include "tests/support/random_bindings.h"

namespace kiln::differential {
namespace {

using Dims = std::map<std::string, int64_t>;
using testing::RandomBindings;

RandomBindings inputs_of(const Kernel& kernel, const Dims& dims, uint64_t seed) {
  testing::RandomOptions options;
  options.seed = seed;
  options.odd_strides = seed % 2 == 0;
  return RandomBindings(kernel, dims, {}, options);
}

// What is wrong with `runs`, which executes a program on bindings, against the interpreter; empty
// if nothing. Zeros of either sign are equal: which one min and max give is open.
template <class Run>
std::string disagreement(const Kernel& kernel, const Dims& dims, uint64_t seed, Run&& run) {
  RandomBindings expected = inputs_of(kernel, dims, seed), got = expected;
  try {
    interpret(kernel, expected.bindings());
  } catch (const Error& error) {
    return fmt::format("the interpreter refuses the program: {}", error.what());
  }
  try {
    run(got.bindings());
  } catch (const std::exception& error) {
    return error.what();
  }
  if (std::string damage = got.damage(); !damage.empty()) return damage;
  return got.difference(expected, 0.0);
}

std::string check_device(const Kernel& kernel, const Dims& dims, uint64_t seed, Device& target) {
  return disagreement(kernel, dims, seed,
                      [&](const Bindings& bindings) { target.compile(kernel)->run(bindings); });
}

std::string check_round_trip(const Kernel& kernel) {
  std::string text = print(kernel);
  std::string again = print(parse(text));
  return text == again ? "" : "print, parse, print changes the text";
}

// The first pass after which the interpreter gives another result; for the report.
std::string guilty_pass(const Kernel& kernel, const Dims& dims, uint64_t seed) {
  Kernel lowered = kernel;
  std::string guilty = "none: the code generator or the runtime";
  bool found = false;
  PassOptions options;
  options.after_each = [&](const PassRun& pass, const Kernel& after) {
    if (found) return;
    std::string wrong = disagreement(kernel, dims, seed,
                                     [&](const Bindings& bindings) { interpret(after, bindings); });
    if (!wrong.empty()) found = true, guilty = pass.name;
  };
  try {
    run_passes(lowered, pipeline_for(Tier::Host), options);
  } catch (const std::exception& error) {
    return error.what();
  }
  return guilty;
}

// Runs `check` in a child process, so that a crash of compiled code is a finding too.
std::string guarded(const std::function<std::string()>& check) {
  int channel[2];
  if (pipe(channel) != 0) throw std::runtime_error("pipe failed");
  std::fflush(stdout);  // or the child would print it again
  pid_t child = fork();
  if (child == 0) {
    std::string result;
    try {
      result = check();
    } catch (const std::exception& error) {
      result = error.what();
    }
    if (write(channel[1], result.data(), result.size()) < 0) _exit(3);
    _exit(0);
  }
  close(channel[1]);
  std::string result;
  char buffer[4096];
  for (ssize_t n; (n = read(channel[0], buffer, sizeof buffer)) > 0;)
    result.append(buffer, static_cast<size_t>(n));
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    return fmt::format("exited with status {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return fmt::format("crashed with signal {}", WTERMSIG(status));
  return result;
}

struct Case {
  Kernel kernel;
  Dims dims;
  uint64_t seed;
};

// A case as text: its program after one line with what it was run with.
std::string text_of(const Case& c) {
  std::string header = fmt::format("// seed={}", c.seed);
  for (const auto& [name, value] : c.dims) header += fmt::format(" {}={}", name, value);
  return header + "\n" + print(c.kernel);
}

Case read_case(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  Case c{parse(text.str(), path), {}, 1};
  std::istringstream header(text.str().substr(0, text.str().find('\n')));
  for (std::string word; header >> word;) {
    size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    int64_t value = std::stoll(word.substr(equals + 1));
    if (word.starts_with("seed=")) {
      c.seed = static_cast<uint64_t>(value);
    } else {
      c.dims[word.substr(0, equals)] = value;
    }
  }
  return c;
}

// How many programs have each op.
class Coverage {
 public:
  void add(const Kernel& kernel) {
    std::set<OpCode> codes;
    walk(kernel, kernel.body, [&](OpId id) { codes.insert(kernel.op(id).code); });
    for (OpCode code : codes) ++programs_[code];
  }
  void print_table() const {
    fmt::print("programs with each op:");
    for (const auto& [code, n] : programs_) fmt::print(" {} {}", info(code).name, n);
    fmt::print("\n");
  }

 private:
  std::map<OpCode, int> programs_;
};

// Reports and reduces a failing case.
void report(const Case& c, const std::string& wrong, Device& target, const std::string& directory) {
  fmt::print("seed {}: {}\n", c.seed, wrong);
  Kernel smaller = reduce(c.kernel, [&](const Kernel& candidate) {
    std::string found = guarded([&] { return check_device(candidate, c.dims, c.seed, target); });
    return !found.empty() && !found.starts_with("the interpreter refuses");
  });
  Case reduced{std::move(smaller), c.dims, c.seed};
  std::string path = fmt::format("{}/failure-{}.tile", directory, c.seed);
  std::ofstream(path) << text_of(reduced);
  fmt::print("pass that changes the result: {}\nreduced to {}:\n{}\n",
             guilty_pass(reduced.kernel, c.dims, c.seed), path, text_of(reduced));
}

int run(int argc, char** argv) {
  CLI::App app{"Random tile programs on a device and on the interpreter"};
  int programs = 1000;
  uint64_t seed = std::random_device{}();
  std::string device_name = "host", directory = ".";
  std::vector<std::string> files;
  bool print_only = false;
  app.add_option("--programs", programs, "how many");
  app.add_option("--seed", seed, "of the first program; the others follow");
  app.add_option("--device", device_name, "compared with the interpreter");
  app.add_option("--out", directory, "where reduced failures are written");
  app.add_flag("--print", print_only, "print the programs instead of running them");
  app.add_option("files", files, "cases to replay first: files, or folders of them");
  CLI11_PARSE(app, argc, argv);

  Device& target = device(device_name);
  Coverage coverage;
  int passed = 0, failed = 0;
  auto test = [&](const Case& c) {
    if (print_only) {
      fmt::print("{}", text_of(c));
      return;
    }
    coverage.add(c.kernel);
    std::string wrong = guarded([&] {
      verify(c.kernel);
      std::string trip = check_round_trip(c.kernel);
      return trip.empty() ? check_device(c.kernel, c.dims, c.seed, target) : trip;
    });
    ++(wrong.empty() ? passed : failed);
    if (!wrong.empty()) report(c, wrong, target, directory);
  };
  for (const std::string& path : files) {
    if (!std::filesystem::is_directory(path)) {
      test(read_case(path));
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".tile") test(read_case(entry.path().string()));
  }
  fmt::print("{} programs from seed {}, interpreter against {}\n", programs, seed, device_name);
  for (int i = 0; i < programs && failed < 5; ++i) {
    Program program = generate(seed + static_cast<uint64_t>(i));
    test({std::move(program.kernel), std::move(program.dims), seed + static_cast<uint64_t>(i)});
  }
  coverage.print_table();
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace kiln::differential

int main(int argc, char** argv) {
  try {
    return kiln::differential::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 2;
  }
}
