// Every place of a Hopper kernel where its protocol can be wrong: arrivals, bytes, waits, parities,
// fences, commits. One mistake at a time; each must show, as a finding or in the result.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <sstream>

#include "tests/ptx/hopper.h"

namespace kiln::ptx {
namespace {

struct Mutant {
  size_t line;  // from 0
  std::string what, text;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

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
std::string caught(const std::string& text, uint64_t seed) {
  const Program program = parse(text);
  for (AsyncMode mode : {AsyncMode::AtIssue, AsyncMode::AtLatest, AsyncMode::Random}) {
    HopperProblem problem{1, 512, true, 1};
    problem.draw(seed);
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

}  // namespace

TEST_CASE("each mistake in the protocol of a Hopper kernel shows", "[hopper][mutation]") {
  std::vector<std::string> lines = lines_of(hopper_text("xdn.ptx"));
  for (std::string& line : lines)
    if (line.find(".reg .pred 	%p<") != std::string::npos) line += " .reg .b32 %mutant;";
  const std::vector<Mutant> mutants = mutants_of(lines);
  CHECK(mutants.size() > 150);
  size_t found = 0, by_result = 0;
  for (const Mutant& mutant : mutants) {
    std::vector<std::string> changed = lines;
    changed[mutant.line] = mutant.text;
    std::string text;
    for (const std::string& line : changed) text += line + "\n";
    const std::string by = caught(text, 5);
    found += !by.empty();
    by_result += by == "the result";
    if (by.empty()) UNSCOPED_INFO("survives: line " << mutant.line + 1 << " " << mutant.what);
    if (by == "the result")
      UNSCOPED_INFO("by result: line " << mutant.line + 1 << " " << mutant.what);
  }
  UNSCOPED_INFO(fmt::format("{} of {} found, {} of them by the result alone", found, mutants.size(),
                            by_result));
  CHECK(found == mutants.size());
}

}  // namespace kiln::ptx
