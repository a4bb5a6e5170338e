// Differential fuzzing: random tile programs run on devices, on the interpreter, and on the
// interpreter after random passes, and must agree bit for bit. A failure is reduced and written as
// a `.tile` file that this program replays.
#include "tests/differential/differential.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <span>
#include <sstream>
#include <thread>

#include "ir/canon.h"
#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "passes/pipeline.h"
#include "runtime/device.h"
#include "tests/differential/generator.h"
#include "tests/differential/random.h"
#include "tests/differential/reducer.h"
#include "tests/passes/race_check.h"
#include "tests/support/on_device.h"
#include "tests/support/random_bindings.h"

namespace kiln::differential {
namespace {

using testing::RandomBindings;

constexpr size_t kTogether = 16;  // programs in one child process
constexpr int kTraces = 100;      // of a program, in the search for races

struct Case {
  Program program;
  uint64_t seed;
};

// Some programs have more tiles than a GPU has shared memory; that they are refused is right.
bool is_too_large(const std::exception& error) {
  return dynamic_cast<const UserError*>(&error) &&
         std::string_view(error.what()).find("shared memory: a block needs") !=
             std::string_view::npos;
}

RandomBindings inputs_of(const Case& c) {
  testing::RandomOptions options;
  options.seed = c.seed;
  options.odd_strides = c.seed % 2 == 0;
  options.any_bits = c.program.any_bits;
  return RandomBindings(c.program.kernel, c.program.dims, {}, options);
}

// The same for another kernel with the same interface.
Case with(const Case& c, const Kernel& kernel) {
  return {{kernel, c.program.dims, c.program.any_bits}, c.seed};
}

// What is wrong with `run`, which executes a program on bindings, against the interpreter; empty
// if nothing. Zeros of either sign are equal: which one min and max give is open. The interpreter
// takes what has no order backwards.
template <class Run>
std::string disagreement(const Case& c, Run&& run) {
  RandomBindings expected = inputs_of(c), got = expected;
  try {
    interpret(c.program.kernel, expected.bindings(),
              {.reverse_blocks = true, .reverse_selected = true});
  } catch (const Error& error) {
    return fmt::format("the interpreter refuses the program: {}", error.what());
  }
  try {
    run(got.bindings());
  } catch (const std::exception& error) {
    return is_too_large(error) ? "" : error.what();
  }
  if (std::string damage = got.damage(); !damage.empty()) return damage;
  return got.difference(expected, 0.0);
}

std::string check_device(const Case& c, Device& target) {
  return disagreement(c, [&](const Bindings& bindings) {
    testing::run_on(target, *target.compile(c.program.kernel), bindings);
  });
}

// The canonical form, and some passes in any order, keep the results; so does a GPU tier's whole
// pipeline, whose passes have an order and leave no races.
std::string check_passes(const Case& c) {
  Random random(c.seed);
  std::vector<Pass> passes;
  std::string names;
  for (int64_t left = random.between(1, 8); left > 0; --left) {
    passes.push_back(random.pick(pipeline_for(Tier::Host)));
    names += fmt::format(" {}", passes.back().name);
  }
  Kernel kernel = canonical(c.program.kernel);
  if (hash(kernel) != hash(c.program.kernel)) return "the canonical form has another hash";
  if (random.chance(50)) {
    const auto& tier = pipeline_for(Tier::Sm80);
    passes.insert(passes.end(), tier.begin(), tier.end());
    const auto targets = gpu_targets();
    kernel.target = targets[static_cast<size_t>(random.between(0, std::ssize(targets) - 1))].name;
    names += fmt::format(" and those of {}", kernel.target);
  }
  try {
    run_passes(kernel, passes, {.verify_each = true, .after_each = {}});
  } catch (const std::exception& error) {
    return is_too_large(error) ? "" : error.what();
  }
  std::string wrong =
      disagreement(c, [&](const Bindings& bindings) { interpret(kernel, bindings); });
  if (wrong.empty() && !kernel.target.empty()) wrong = testing::RaceCheck(kernel, kTraces).find();
  return wrong.empty() ? "" : fmt::format("after{}: {}", names, wrong);
}

std::string check_round_trip(const Kernel& kernel) {
  std::string text = print(kernel);
  std::string again = print(parse(text));
  return text == again ? "" : "print, parse, print changes the text";
}

// The first pass after which the interpreter gives another result; for the report.
std::string guilty_pass(const Case& c) {
  Kernel lowered = c.program.kernel;
  std::string guilty = "none of the pipeline";
  bool found = false;
  PassOptions options;
  options.after_each = [&](const PassRun& pass, const Kernel& after) {
    if (found) return;
    std::string wrong =
        disagreement(c, [&](const Bindings& bindings) { interpret(after, bindings); });
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

bool one_at_a_time = false;  // --serial: for tools that cannot follow several threads

// On a GPU: only what runs there, in this process (a GPU's context does not survive a fork), and in
// several threads, since most of the time goes into the driver's compiler.
std::string check_on_gpu(std::span<const Case> cases, Device& target) {
  if (one_at_a_time) {
    for (const Case& c : cases)
      if (std::string wrong = check_device(c, target); !wrong.empty()) return wrong;
    return "";
  }
  std::vector<std::string> wrong(cases.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cases.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        wrong[i] = check_device(cases[i], target);
      } catch (const std::exception& error) {
        wrong[i] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : wrong)
    if (!one.empty()) return one;
  return "";
}

// What programs run on.
struct Targets {
  std::vector<Device*> here, gpus;  // those with this process's memory, and the others
};

std::string named_if_several(const Targets& targets, const Device& device,
                             const std::string& wrong) {
  if (targets.here.size() + targets.gpus.size() < 2) return wrong;
  return fmt::format("on {}: {}", device.name(), wrong);
}

// All that is checked of some programs, in one child process because a new one is slow at first;
// empty if nothing is wrong.
std::string check(std::span<const Case> cases, const Targets& targets) {
  for (Device* gpu : targets.gpus)
    if (std::string wrong = check_on_gpu(cases, *gpu); !wrong.empty())
      return named_if_several(targets, *gpu, wrong);
  if (targets.here.empty()) return "";
  return guarded([&]() -> std::string {
    for (const Case& c : cases) {
      verify(c.program.kernel);
      std::string wrong = check_round_trip(c.program.kernel);
      if (!wrong.empty()) return wrong;
      for (Device* target : targets.here)
        if (wrong = check_device(c, *target); !wrong.empty())
          return named_if_several(targets, *target, wrong);
      if (wrong = check_passes(c); !wrong.empty()) return wrong;
    }
    return "";
  });
}
std::string check(const Case& c, const Targets& targets) {
  return check(std::span(&c, 1), targets);
}

// A case as text: its program after one line with what it was run with.
std::string text_of(const Case& c) {
  std::string header = fmt::format("// seed={}", c.seed);
  if (c.program.any_bits) header += " any_bits=1";
  for (const auto& [name, value] : c.program.dims) header += fmt::format(" {}={}", name, value);
  return header + "\n" + print(c.program.kernel);
}

Case read_case(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  Case c{{parse(text.str(), path), {}}, 1};
  std::istringstream header(text.str().substr(0, text.str().find('\n')));
  for (std::string word; header >> word;) {
    size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    const int64_t value = std::stoll(word.substr(equals + 1));
    if (name == "seed") {
      c.seed = static_cast<uint64_t>(value);
    } else if (name == "any_bits") {
      c.program.any_bits = value != 0;
    } else {
      c.program.dims[name] = value;
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
void report(const Case& c, const std::string& wrong, const Targets& targets,
            const std::string& directory) {
  fmt::print("seed {}: {}\n", c.seed, wrong);
  std::fflush(stdout);
  const Case reduced =
      with(c, reduce(c.program.kernel, [&](const Kernel& candidate) {
             std::string found = check(with(c, candidate), targets);
             return !found.empty() && !found.starts_with("the interpreter refuses");
           }));
  std::string path = fmt::format("{}/failure-{}.tile", directory, c.seed);
  std::ofstream(path) << text_of(reduced);
  fmt::print("pass that changes the result: {}\nreduced to {}: {}\n{}\n", guilty_pass(reduced),
             path, check(reduced, targets), text_of(reduced));
}

}  // namespace

int run(int argc, char** argv) {
  CLI::App app{"Random tile programs on devices and on the interpreter"};
  int programs = 1000;
  uint64_t seed = std::random_device{}();
  std::string directory = ".";
  std::vector<std::string> files, devices{"host"};
  bool print_only = false;
  app.add_option("--programs", programs, "how many");
  app.add_option("--seed", seed, "of the first program; the others follow");
  app.add_option("--device", devices, "compared with the interpreter: NAME[,NAME…]")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--out", directory, "where reduced failures are written");
  app.add_flag("--print", print_only, "print the programs instead of running them");
  app.add_flag("--serial", one_at_a_time, "on a GPU, one program at a time");
  app.add_option("files", files, "cases to replay first: files, or folders of them");
  CLI11_PARSE(app, argc, argv);

  Targets targets;
  for (const std::string& name : devices) {
    Device& target = device(name);
    (testing::uses_host_memory(target) ? targets.here : targets.gpus).push_back(&target);
  }
  Coverage coverage;
  int passed = 0, failed = 0;
  std::vector<Case> waiting;
  auto run_waiting = [&] {
    const bool all_right = check(waiting, targets).empty();
    for (const Case& c : waiting) {
      std::string wrong = all_right ? "" : check(c, targets);
      ++(wrong.empty() ? passed : failed);
      if (!wrong.empty()) report(c, wrong, targets, directory);
    }
    waiting.clear();
  };
  auto test = [&](Case c) {
    if (print_only) {
      fmt::print("{}", text_of(c));
      return;
    }
    coverage.add(c.program.kernel);
    waiting.push_back(std::move(c));
    if (waiting.size() == kTogether) run_waiting();
  };
  for (const std::string& path : files) {
    if (!std::filesystem::is_directory(path)) {
      test(read_case(path));
      continue;
    }
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".tile") test(read_case(entry.path().string()));
  }
  fmt::print("{} programs from seed {}, interpreter against {}\n", programs, seed,
             fmt::join(devices, ", "));
  for (int i = 0; i < programs && failed < 5; ++i) {
    const uint64_t this_seed = seed + static_cast<uint64_t>(i);
    test({generate(this_seed), this_seed});
  }
  run_waiting();
  coverage.print_table();
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace kiln::differential
