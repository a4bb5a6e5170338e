// Every place of a Hopper kernel where its protocol can be wrong: arrivals, bytes, waits, parities,
// fences, commits. One mistake at a time; each must show, as a finding or in the result.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "tests/ptx/hopper.h"
#include "tests/support/lines.h"

namespace kiln::ptx {
namespace {

using testing::joined, testing::lines_of;

struct Mutant {
  size_t line;  // from 0
  std::string what, text;
};

// What may be left out as a whole.
constexpr const char* kLeftOut[] = {
    "mbarrier.init",     "mbarrier.arrive",      "fence.mbarrier_init",
    "fence.proxy.async", "wgmma.fence",          "wgmma.commit_group",
    "wgmma.wait_group",  "cp.async.bulk.commit", "cp.async.bulk.wait_group",
    "bar.sync",          "bar.warp.sync",        "cp.async.bulk.tensor",
    "setmaxnreg",
};

std::string with(std::string line, const std::string& from, const std::string& to) {
  return line.replace(line.find(from), from.size(), to);
}

std::vector<Mutant> mutants_of(const std::vector<std::string>& lines) {
  std::vector<Mutant> all;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    for (const char* begin : kLeftOut)
      if (line.find(begin) != std::string::npos) {
        all.push_back({i, fmt::format("without {}", line), ""});
        break;
      }
    if (line.find("expect_tx") != std::string::npos)
      all.push_back({i, fmt::format("fewer bytes: {}", line),
                     "mov.u32 %mutant, 16384;" + line.substr(0, line.rfind(',')) + ", %mutant;"});
    if (line.find("mbarrier.try_wait") != std::string::npos) {
      const size_t comma = line.rfind(','), end = line.rfind(';');
      all.push_back({i, fmt::format("the other parity: {}", line),
                     fmt::format("xor.b32 %mutant, {}, 1; {}, %mutant;",
                                 line.substr(comma + 1, end - comma - 1), line.substr(0, comma))});
    }
    if (line.starts_with("@P1 bra D_") || line.find("@p bra") != std::string::npos)
      all.push_back({i, fmt::format("without waiting: {}", line), with(line, "@P1 ", "")});
    for (int n : {0, 1})
      if (line.find(fmt::format("wgmma.wait_group.sync.aligned {};", n)) != std::string::npos)
        all.push_back({i, fmt::format("one group less: {}", line),
                       fmt::format("wgmma.wait_group.sync.aligned {};", n + 1)});
  }
  return all;
}

// What a mutant's runs show; empty if nothing.
std::string caught(const std::string& text, std::vector<HopperProblem>& problems) {
  const Program program = parse(text);
  for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest, AsyncMode::Random})
    for (HopperProblem& problem : problems) {
      Options options;
      options.async = mode;
      options.threads = 1;
      options.max_instructions = 4000000;
      const std::string found = hopper_findings(problem.run(program, 1, options));
      if (!found.empty()) return found;
      if (!(problem.error() < 2e-3)) return "the result";
    }
  return "";
}

// Why a mistake may show nowhere; null if it must.
const char* excuse(const Mutant& mutant) {
  struct Excuse {
    const char *of, *why;
  };
  constexpr Excuse kExcuses[] = {
      {"without     wgmma.fence", "each round has two, and either does for both"},
      {"without     fence.mbarrier_init", "fence.proxy.async behind it does, too"},
      {"without     fence.proxy.async", "at the start fence.mbarrier_init does, too"},
      {"without     setmaxnreg.inc", "the emulator's registers are as many as the code names"},
      {"without     bar.warp.sync", "what one lane has waited for, the emulator's warp knows"},
  };
  for (const Excuse& each : kExcuses)
    if (mutant.what.starts_with(each.of)) return each.why;
  return nullptr;
}

// Lines of the text that some problem runs, from 1 on.
std::set<int> lines_run(const std::string& text, std::vector<HopperProblem>& problems) {
  std::set<int> lines;
  const Program program = parse(text);
  for (HopperProblem& problem : problems) {
    Options options;
    options.threads = 1;
    for (const LineProfile& line : problem.run(program, 1, options).lines)
      if (line.lanes > 0) lines.insert(line.ptx_line);
  }
  return lines;
}

}  // namespace

TEST_CASE("each mistake in the protocol of a Hopper kernel shows", "[hopper][mutation][long]") {
  std::vector<std::string> lines = lines_of(hopper_text("xdn.ptx"));
  for (std::string& line : lines)
    if (line.find(".reg .pred") != line.npos && line.find("%p<") != line.npos)
      line += " .reg .b32 %mutant;";
  std::vector<HopperProblem> problems = {{2, 384, true, 0.6}, {1, 256, false, 1, 12}};
  for (HopperProblem& problem : problems) problem.draw(5);
  const std::set<int> run = lines_run(joined(lines), problems);
  size_t made = 0, found = 0, excused = 0;
  for (const Mutant& mutant : mutants_of(lines)) {
    if (!run.contains(static_cast<int>(mutant.line) + 1)) continue;
    std::vector<std::string> changed = lines;
    changed[mutant.line] = mutant.text;
    ++made;
    const std::string by = caught(joined(changed), problems);
    found += !by.empty();
    excused += by.empty() && excuse(mutant);
    if (by.empty())
      UNSCOPED_INFO("survives: line " << mutant.line + 1 << " " << mutant.what
                                      << (excuse(mutant) ? excuse(mutant) : ""));
    if (by == "the result")
      UNSCOPED_INFO("by the result alone: line " << mutant.line + 1 << " " << mutant.what);
  }
  UNSCOPED_INFO(fmt::format("{} of {} found, {} excused", found, made, excused));
  // The rest are waits and arrivals at places that nothing in these problems comes back to.
  CHECK(found + excused >= made * 95 / 100);
  CHECK(made > 90);
}

}  // namespace kiln::ptx
