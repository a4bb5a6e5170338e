#include "tests/differential/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <thread>

#include "ir/canon.h"
#include "ir/error.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "ir/walk.h"
#include "passes/gpu_target.h"
#include "passes/pipeline.h"
#include "tests/differential/child.h"
#include "tests/differential/random.h"
#include "tests/passes/race_check.h"
#include "tests/support/on_device.h"
#include "tests/support/written_by.h"

namespace kiln::differential {
namespace {

using testing::RandomBindings;
using testing::written_by;

constexpr int kTraces = 100;                // of a program, in the search for races
constexpr unsigned kSeconds = 600;          // for some programs; they take a few
constexpr unsigned kSecondsOfReduced = 10;  // one whose loop lost its end runs forever
constexpr const char* kLatest = "emulator-latest";

// Some programs have more tiles than a GPU has shared memory; that they are refused is right.
bool is_too_large(const std::exception& error) {
  return dynamic_cast<const UserError*>(&error) &&
         std::string_view(error.what()).find("shared memory: a block needs") !=
             std::string_view::npos;
}

bool has_watches(const Kernel& kernel) {
  bool found = false;
  walk(kernel, kernel.body, [&](OpId id) { found |= kernel.op(id).code == OpCode::Watch; });
  return found;
}

// Reports of blocks, in whatever order they came.
std::vector<std::string> reports_in(const std::string& text) {
  std::vector<std::string> reports;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    if (text[at] != ' ' || reports.empty()) reports.emplace_back();  // else more rows of one
    reports.back() += text.substr(at, end - at);
    at = end;
  }
  std::sort(reports.begin(), reports.end());
  return reports;
}

enum class Watches { Compared, Ignored };

// What the interpreter makes of a program: it takes what has no order backwards.
class Reference {
 public:
  explicit Reference(const Case& c)
      : inputs_(inputs_of(c)), expected_(inputs_), watches_(has_watches(c.program.kernel)) {
    auto run = [&] {
      interpret(c.program.kernel, expected_.bindings(),
                {.reverse_blocks = true, .reverse_selected = true});
    };
    try {
      if (watches_) {
        const std::string written = written_by(run);
        reports_ = reports_in(written);
        if (written.find(" ?") != std::string::npos)
          refused_ = "the interpreter watches what was never written";
      } else {
        run();
      }
    } catch (const Error& error) {
      refused_ = fmt::format("the interpreter refuses the program: {}", error.what());
    }
  }

  const std::string& refused() const { return refused_; }

  // What is wrong with `run`, which executes the program on bindings; empty if nothing. Zeros of
  // either sign are equal: which one min and max give is open.
  template <class Run>
  std::string disagreement(Run&& run, Watches watches = Watches::Ignored) {
    if (!refused_.empty()) return refused_;
    RandomBindings got = inputs_;
    std::string written;
    try {
      if (watches_) {
        written = written_by([&] { run(got.bindings()); });
      } else {
        run(got.bindings());
      }
    } catch (const std::exception& error) {
      return is_too_large(error) ? "" : error.what();
    }
    if (std::string damage = got.damage(); !damage.empty()) return damage;
    if (watches == Watches::Compared && reports_in(written) != reports_)
      return fmt::format("what it watched differs: expected\n{}got\n{}", fmt::join(reports_, ""),
                         written);
    return got.difference(expected_, 0.0);
  }

 private:
  RandomBindings inputs_, expected_;
  const bool watches_;
  std::vector<std::string> reports_;
  std::string refused_;
};

std::string check_device(const Case& c, const Target& target, Reference& expected) {
  Device& device = *target.device;
  const bool here = testing::uses_host_memory(device);
  if (here) setenv("KILN_EMULATOR_ASYNC", target.name == kLatest ? "latest" : "issue", 1);
  return expected.disagreement(
      [&](const Bindings& bindings) {
        testing::run_on(device, *device.compile(c.program.kernel), bindings);
      },
      here ? Watches::Compared : Watches::Ignored);
}

// The canonical form, and some passes in any order, keep the results; so does a GPU tier's whole
// pipeline, whose passes have an order and leave no races.
std::string check_passes(const Case& c, Reference& expected) {
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
    const std::vector<Pass> tier = passes_for(kernel, Tier::Sm80);
    passes.insert(passes.end(), tier.begin(), tier.end());
    const auto targets = gpu_targets();
    kernel.target = targets[static_cast<size_t>(random.between(0, std::ssize(targets) - 1))].name;
    names += fmt::format(" and those of {}", kernel.target);
    if (!kernel.without.empty()) names += fmt::format(" without {}", kernel.without);
  }
  try {
    run_passes(kernel, passes, {.verify_each = true, .after_each = {}});
  } catch (const std::exception& error) {
    return is_too_large(error) ? "" : error.what();
  }
  // A GPU's passes move a tile that is watched to another space, which the report names.
  std::string wrong =
      expected.disagreement([&](const Bindings& bindings) { interpret(kernel, bindings); },
                            kernel.target.empty() ? Watches::Compared : Watches::Ignored);
  if (wrong.empty() && !kernel.target.empty()) wrong = testing::RaceCheck(kernel, kTraces).find();
  return wrong.empty() ? "" : fmt::format("after{}: {}", names, wrong);
}

std::string check_round_trip(const Kernel& kernel) {
  std::string text = print(kernel);
  std::string again = print(parse(text));
  return text == again ? "" : "print, parse, print changes the text";
}

std::string named_if_several(const Targets& targets, const Target& target,
                             const std::string& wrong) {
  if (targets.here.size() + targets.gpus.size() < 2) return wrong;
  return fmt::format("on {}: {}", target.name, wrong);
}

std::string check_here(const Case& c, const Targets& targets) {
  verify(c.program.kernel);
  std::string wrong = check_round_trip(c.program.kernel);
  if (!wrong.empty()) return wrong;
  Reference expected(c);
  if (!expected.refused().empty()) return expected.refused();
  for (const Target& target : targets.here)
    if (wrong = check_device(c, target, expected); !wrong.empty())
      return named_if_several(targets, target, wrong);
  return check_passes(c, expected);
}

// Several threads have one standard error.
Case without_watches(const Case& c) {
  Case quiet = c;
  drop_watches(quiet.program.kernel);
  return quiet;
}

std::string check_on_gpu(const Case& c, const Target& target) {
  try {
    const Case quiet = without_watches(c);
    Reference expected(quiet);
    return check_device(quiet, target, expected);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// On a GPU: only what runs there, in this process (a GPU's context does not survive a fork), and in
// several threads, since most of the time goes into the driver's compiler.
std::string check_on_gpu(std::span<const Case> cases, const Target& target, bool one_at_a_time) {
  std::vector<std::string> wrong(cases.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < cases.size(); ++i) {
    threads.emplace_back([&, i] { wrong[i] = check_on_gpu(cases[i], target); });
    if (one_at_a_time) threads.back().join();
  }
  for (std::thread& thread : threads)
    if (thread.joinable()) thread.join();
  for (const std::string& one : wrong)
    if (!one.empty()) return one;
  return "";
}

}  // namespace

Targets targets_named(const std::vector<std::string>& names) {
  Targets targets;
  for (const std::string& name : names) {
    Device& target = device(name == kLatest ? "emulator" : name);
    (testing::uses_host_memory(target) ? targets.here : targets.gpus).push_back({name, &target});
  }
  return targets;
}

std::string check(std::span<const Case> cases, const Targets& targets) {
  for (const Target& gpu : targets.gpus)
    if (std::string wrong = check_on_gpu(cases, gpu, targets.one_at_a_time); !wrong.empty())
      return named_if_several(targets, gpu, wrong);
  if (targets.here.empty()) return "";
  return guarded(
      [&]() -> std::string {
        for (const Case& c : cases)
          if (std::string wrong = check_here(c, targets); !wrong.empty()) return wrong;
        return "";
      },
      kSeconds);
}

std::string check_reduced(const Case& c, const Targets& targets) {
  const Case quiet = targets.here.empty() ? without_watches(c) : c;
  const std::string unclear = guarded(
      [&] {
        return Reference(quiet).disagreement(
            [&](const Bindings& bindings) { interpret(quiet.program.kernel, bindings); });
      },
      kSecondsOfReduced);
  return unclear.empty() ? check(c, targets) : "";
}

std::string guilty_pass(const Case& c) {
  Reference expected(c);
  for (const Tier tier : {Tier::Host, Tier::Sm80}) {
    Kernel lowered = c.program.kernel;
    if (tier == Tier::Sm80) lowered.target = "sm_90";
    std::string guilty;
    PassOptions options;
    options.after_each = [&](const PassRun& pass, const Kernel& after) {
      if (!guilty.empty()) return;
      std::string wrong =
          expected.disagreement([&](const Bindings& bindings) { interpret(after, bindings); });
      if (!wrong.empty()) guilty = pass.name;
    };
    try {
      run_passes(lowered, passes_for(lowered, tier), options);
    } catch (const std::exception& error) {
      return error.what();
    }
    if (!guilty.empty()) return guilty;
  }
  return "none of the pipelines";
}

}  // namespace kiln::differential
