// What becomes of each mutant of a Hopper kernel: a finding or a wrong result shows it, or there is
// a reason why nothing does.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ptx/ptx.h"
#include "tests/support/hopper_mutants.h"

namespace kiln::testing {

// A run of some text on one problem in one mode.
struct HopperRun {
  std::string finding, wrong;      // empty if there is none
  std::vector<std::byte> results;  // every byte
  std::vector<ptx::LineProfile> lines;
};
// Runs a text; the most instructions of a block bound it.
using RunHopper = std::function<HopperRun(const std::string& ptx, ptx::AsyncMode, uint64_t most)>;

// Why nothing shows a mutant. Equivalent: by PTX's rules, or because of what holds for every input,
// it does what the kernel does. Others it should show, and does not.
struct Reason {
  bool equivalent = false;
  std::string text;  // empty: nobody knows
};

// A reason that somebody has written down, for the mutants of these lines (from 1).
struct Note {
  size_t first, last;
  Reason reason;
};
// Lines "FIRST[-LAST] equivalent|survives REASON"; # begins a comment.
inline std::vector<Note> notes_of(const std::string& text) {
  static const std::regex form(R"((\d+)(-(\d+))? (equivalent|survives) (.*))");
  std::vector<Note> notes;
  for (const std::string& line : lines_of(text)) {
    if (line.empty() || line[0] == '#') continue;
    std::smatch found;
    INFO(line);
    REQUIRE(std::regex_match(line, found, form));
    const size_t first = std::stoul(found[1]);
    notes.push_back({first,
                     found[3].matched ? std::stoul(found[3]) : first,
                     {found[4] == "equivalent", found[5]}});
  }
  return notes;
}

class HopperJudge {
 public:
  HopperJudge(const std::string& ptx, std::vector<RunHopper> problems, std::vector<Note> notes)
      : lines_(prepared(ptx)), problems_(std::move(problems)), notes_(std::move(notes)) {
    for (const RunHopper& run : problems_)
      for (ptx::AsyncMode mode : kModes) {
        right_.push_back(run(joined(lines_), mode, uint64_t{1} << 32));
        REQUIRE(right_.back().finding + right_.back().wrong == "");
        uint64_t warps = 0;
        for (const ptx::LineProfile& line : right_.back().lines) {
          warps += line.warps;
          const auto [it, fresh] = did_.try_emplace(static_cast<size_t>(line.ptx_line), line);
          if (fresh) continue;
          it->second.lanes += line.lanes;
          it->second.held_back += line.held_back;
          it->second.completed += line.completed;
        }
        most_.push_back(2 * warps + 20000);
      }
  }

  struct Judgement {
    HopperMutant mutant;
    std::string by;  // what shows it: a finding, or a wrong result; empty if nothing does
    bool by_result = false;
    Reason reason;  // why nothing does
  };

  // Of every `step`-th mutant.
  std::vector<Judgement> all(size_t step) const {
    const std::vector<HopperMutant> mutants = hopper_mutants(lines_);
    std::vector<Judgement> judged((mutants.size() + step - 1) / step);
    std::atomic<size_t> next = 0;
    auto work = [&] {
      for (size_t i; (i = next++) < judged.size();) judged[i] = judge(mutants[i * step]);
    };
    std::future<void> other = std::async(std::launch::async, work);
    work();
    other.get();
    return judged;
  }

  // The notes that explain none of these.
  std::string idle_notes(const std::vector<Judgement>& judged) const {
    std::string idle;
    for (const Note& note : notes_)
      if (std::ranges::none_of(judged, [&](const Judgement& j) {
            return j.by.empty() && j.reason.text == note.reason.text;
          }))
        idle += fmt::format("{}-{} {}\n", note.first, note.last, note.reason.text);
    return idle;
  }

 private:
  static constexpr ptx::AsyncMode kModes[] = {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest,
                                              ptx::AsyncMode::Random};

  // What the kernel did at a line, if it ever got there.
  const ptx::LineProfile* did(size_t line) const {
    const auto it = did_.find(line + 1);
    return it == did_.end() ? nullptr : &it->second;
  }

  struct Shown {
    std::string by;
    bool by_result = false, same = true;  // every byte of the results is as it was
  };
  Shown shown(const std::vector<std::string>& lines) const {
    Shown shown;
    size_t i = 0;
    for (const RunHopper& run : problems_)
      for (ptx::AsyncMode mode : kModes) {
        const HopperRun ran = run(joined(lines), mode, most_[i]);
        shown.by_result = ran.finding.empty() && !ran.wrong.empty();
        shown.by = shown.by_result ? ran.wrong : ran.finding;
        if (!shown.by.empty()) return shown;
        shown.same &= ran.results == right_[i++].results;
      }
    return shown;
  }

  Judgement judge(const HopperMutant& mutant) const {
    if (!did(mutant.line)) return {mutant, "", false, noted(mutant, true)};
    std::vector<std::string> changed = lines_;
    changed[mutant.line] = mutant.text;
    const Shown what = shown(changed);
    Judgement judgement{mutant, what.by, what.by_result, {}};
    if (!what.by.empty()) return judgement;
    if (what.same) judgement.reason = reason(mutant);
    if (judgement.reason.text.empty()) judgement.reason = noted(mutant, what.same);
    return judgement;
  }

  // Of a mutant without which every byte is the same; what is said of PTX is of its ISA.
  Reason reason(const HopperMutant& mutant) const {
    if (mutant.kind != HopperMutant::Kind::LeftOut) return {};
    const auto is = [&](std::string_view what) { return mutant.original.starts_with(what); };
    if (is("wgmma.fence"))
      return {
          true,
          "\"wgmma.fence\" demands one before the first product and between other accesses to a "
          "product's registers and the product: these are watched, and find one still"};
    if (is("bar.warp.sync"))
      return {
          true,
          "\"bar.warp.sync\" orders memory among lanes and lets them meet: lanes are watched one "
          "by one, and nothing that one does needs what this tells it of another"};
    if (is("mbarrier.arrive") && did(mutant.line)->completed == 0)
      return {
          true,
          "\"mbarrier\": an arrival acts by the phase that it completes, and no wait sees one of "
          "these"};
    if (is("fence.mbarrier_init") || is("fence.proxy.async")) return beside_another(mutant);
    if (is("setmaxnreg.inc"))
      return {false,
              "registers are as many here as the text names; ptxas then allots fewer, by spilling "
              "if it must, which is right and slower"};
    return {};
  }

  // Fences side by side that tell the async proxy of mbarriers: either does, both left out show.
  Reason beside_another(const HopperMutant& mutant) const {
    constexpr size_t kNear = 4;
    std::vector<std::string> changed = lines_;
    for (size_t i = mutant.line - kNear; i <= mutant.line + kNear; ++i)
      if (changed[i].find("fence.") != std::string::npos) changed[i].clear();
    if (shown(changed).by.empty()) return {};
    return {true, "the fence beside it tells the async proxy the same: without both it shows"};
  }

  Reason noted(const HopperMutant& mutant, bool same) const {
    for (const Note& note : notes_)
      if (mutant.line + 1 >= note.first && mutant.line + 1 <= note.last)
        if (same || !note.reason.equivalent) return note.reason;
    return {};
  }

  std::vector<std::string> lines_;
  std::vector<RunHopper> problems_;
  std::vector<Note> notes_;
  std::vector<HopperRun> right_;  // by problem, then mode
  std::vector<uint64_t> most_;
  std::map<size_t, ptx::LineProfile> did_;
};

// The rule: of all mutants that are not equivalent, 95 % show, and each that does not is explained.
// The emulator finds what is wrong of order; the result alone may show a predicate that computes
// something else, and a copy out that is left out. The share is not looked at of a sample.
inline void check_hopper_mutants(const std::string& name, const HopperJudge& judge, size_t least,
                                 size_t step = 1) {
  const auto all = judge.all(step);
  size_t shown = 0, by_result = 0, equivalent = 0, unexplained = 0, unreported = 0;
  std::string rest;
  for (const HopperJudge::Judgement& j : all) {
    shown += !j.by.empty();
    by_result += j.by_result;
    equivalent += j.reason.equivalent;
    const bool orders = j.mutant.kind != HopperMutant::Kind::Predicate &&
                        !j.mutant.original.starts_with("cp.async.bulk.tensor");
    unreported += j.by_result && orders;
    if (!j.by.empty()) continue;
    unexplained += j.reason.text.empty();
    rest += fmt::format("{}\n    {}: {}\n", j.mutant.what(),
                        j.reason.equivalent ? "equivalent" : "survives",
                        j.reason.text.empty() ? "nobody knows why" : j.reason.text);
  }
  const size_t wrong = all.size() - equivalent;
  const std::string table = fmt::format(
      "{}: {} mutants, {} are equivalent; of the other {}, {} show ({:.1f} %; {} by the result "
      "alone) and {} survive, {} of these unexplained\n{}",
      name, all.size(), equivalent, wrong, shown,
      100 * static_cast<double>(shown) / static_cast<double>(wrong), by_result, wrong - shown,
      unexplained, rest);
  fmt::print("{}\n", table);
  INFO(table);
  CHECK(all.size() >= least);
  CHECK(unexplained == 0);
  CHECK(unreported == 0);
  if (step != 1) return;
  CHECK(shown * 100 >= wrong * 95);
  CHECK(judge.idle_notes(all) == "");
}

}  // namespace kiln::testing
