// Every place of a Hopper kernel where its protocol can be wrong — arrivals, bytes, waits,
// parities, fences, commits, copies, predicates — wrong, one at a time; and what becomes of each.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ptx/ptx.h"
#include "tests/support/lines.h"

namespace kiln::testing {

struct HopperMutant {
  enum class Kind : uint8_t { LeftOut, Bytes, Parity, Loop, Wait, Predicate };
  Kind kind;
  size_t line;  // from 0
  std::string original, text;
  std::string what() const {
    constexpr const char* kNames[] = {"without",         "fewer bytes",    "the other parity",
                                      "without waiting", "one group less", "without the predicate"};
    return fmt::format("line {}: {}: {}", line + 1, kNames[static_cast<size_t>(kind)], original);
  }
};

// Registers that mutants use are declared by `prepared`.
inline std::vector<std::string> prepared(const std::string& ptx) {
  std::vector<std::string> lines = lines_of(ptx);
  for (std::string& line : lines)
    if (line.find(".reg .pred") != line.npos && line.find("%p<") != line.npos)
      line += " .reg .b32 %mutant;";
  return lines;
}

inline std::vector<HopperMutant> hopper_mutants(const std::vector<std::string>& lines) {
  using Kind = HopperMutant::Kind;
  static const std::regex left_out(
      R"((mbarrier\.(init|arrive)|fence\.mbarrier_init|fence\.proxy\.async|wgmma\.(fence|commit_group|wait_group)|cp\.async\.bulk|bar\.(warp\.)?sync|setmaxnreg)[^;]*;)");
  static const std::regex bytes(R"(.*expect_tx.*,\s*([^,;]+);)");
  static const std::regex parity(R"((\s*mbarrier\.try_wait.*,)\s*([^,;]+);)");
  static const std::regex loop(R"(@(P1|p) (bra (D_|L_done_).*))");
  static const std::regex wait(R"((.*(wgmma|bulk)\.wait_group\S*\s+)(\d+);)");
  static const std::regex predicate(R"(@!?%p\d+\s+([^;]*;))");
  std::vector<HopperMutant> all;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    const auto add = [&](Kind kind, const std::string& text) {
      all.push_back(
          {kind, i, line.substr(std::min(line.find_first_not_of(" \t"), line.size())), text});
    };
    std::smatch found;
    if (line.find('@') == line.npos && std::regex_search(line, left_out)) add(Kind::LeftOut, "");
    if (std::regex_match(line, found, bytes))
      add(Kind::Bytes, fmt::format("sub.u32 %mutant, {}, 512; {}, %mutant;", found[1].str(),
                                   line.substr(0, line.rfind(','))));
    if (std::regex_match(line, found, parity))
      add(Kind::Parity,
          fmt::format("xor.b32 %mutant, {}, 1; {} %mutant;", found[2].str(), found[1].str()));
    if (std::regex_search(line, found, loop)) add(Kind::Loop, found[2].str());
    if (std::regex_match(line, found, wait))
      add(Kind::Wait, fmt::format("{}{};", found[1].str(), std::stoi(found[3]) + 1));
    if (std::regex_search(line, found, predicate)) add(Kind::Predicate, found[1].str());
  }
  return all;
}

// A run of some text on one problem in one mode.
struct HopperRun {
  std::string finding, wrong;      // empty if there is none
  std::vector<std::byte> results;  // every byte
  std::vector<ptx::LineProfile> lines;
};
// Runs a text; the most instructions of a block bound it.
using RunHopper = std::function<HopperRun(const std::string& ptx, ptx::AsyncMode, uint64_t most)>;

class HopperJudge {
 public:
  HopperJudge(const std::string& ptx, std::vector<RunHopper> problems)
      : lines_(prepared(ptx)), problems_(std::move(problems)) {
    for (const RunHopper& run : problems_)
      for (ptx::AsyncMode mode : kModes) {
        right_.push_back(run(joined(lines_), mode, uint64_t{1} << 32));
        REQUIRE(right_.back().finding + right_.back().wrong == "");
        uint64_t warps = 0;
        for (const ptx::LineProfile& line : right_.back().lines) warps += line.warps;
        most_.push_back(2 * warps + 20000);
        add(right_.back(), before_);
      }
  }

  struct Judgement {
    HopperMutant mutant;
    std::string by;      // what shows it: a finding, or a wrong result; empty if nothing does
    std::string reason;  // why nothing does: computed from the runs; empty if nobody knows
    bool by_result = false;
  };

  // Of all mutants whose line some problem runs; `never_run` are the others.
  std::vector<Judgement> all(size_t& never_run) const {
    std::vector<HopperMutant> mutants = hopper_mutants(lines_);
    never_run =
        std::erase_if(mutants, [&](const HopperMutant& m) { return lanes_at(m.line) == 0; });
    std::vector<Judgement> judged(mutants.size());
    std::atomic<size_t> next = 0;
    auto work = [&] {
      for (size_t i; (i = next++) < mutants.size();) judged[i] = judge(mutants[i]);
    };
    std::future<void> other = std::async(std::launch::async, work);
    work();
    other.get();
    explain_pairs(judged);
    return judged;
  }

 private:
  static constexpr ptx::AsyncMode kModes[] = {ptx::AsyncMode::AtIssue, ptx::AsyncMode::AtLatest,
                                              ptx::AsyncMode::Random};
  using Lines = std::map<int, ptx::LineProfile>;

  static void add(const HopperRun& run, Lines& lines) {
    for (const ptx::LineProfile& line : run.lines) {
      auto [it, fresh] = lines.try_emplace(line.ptx_line, line);
      if (fresh) continue;
      it->second.lanes += line.lanes;
      it->second.held_back += line.held_back;
      it->second.completed += line.completed;
    }
  }
  uint64_t lanes_at(size_t line) const {
    const auto it = before_.find(static_cast<int>(line) + 1);
    return it == before_.end() ? 0 : it->second.lanes + it->second.held_back;
  }

  // What shows a text; the results' bytes and what its lines did if nothing does.
  std::string shown(const std::string& text, bool& by_result, bool& same, Lines& lines) const {
    size_t i = 0;
    for (const RunHopper& run : problems_)
      for (ptx::AsyncMode mode : kModes) {
        const HopperRun did = run(text, mode, most_[i]);
        if (!did.finding.empty()) return did.finding;
        by_result = !did.wrong.empty();
        if (by_result) return did.wrong;
        same &= did.results == right_[i++].results;
        add(did, lines);
      }
    return "";
  }

  Judgement judge(const HopperMutant& mutant) const {
    Judgement judgement{mutant, "", ""};
    std::vector<std::string> changed = lines_;
    changed[mutant.line] = mutant.text;
    Lines after;
    bool same = true;
    judgement.by = shown(joined(changed), judgement.by_result, same, after);
    if (judgement.by.empty() && same) judgement.reason = reason(mutant, after);
    return judgement;
  }

  // Of a mutant that every byte survives.
  std::string reason(const HopperMutant& mutant, const Lines& after) const {
    const ptx::LineProfile& line = before_.at(static_cast<int>(mutant.line) + 1);
    switch (mutant.kind) {
      case HopperMutant::Kind::Predicate:
        if (line.held_back == 0) return "the predicate holds no lane back";
        if (line.lanes > 0)
          return fmt::format("{} lanes passed, {} were held back, and no byte is another",
                             line.lanes, line.held_back);
        return "";
      case HopperMutant::Kind::Loop:  // the next line goes back
        return lanes_at(mutant.line + 1) == 0 ? "the phase was complete whenever it was asked for"
                                              : "";
      case HopperMutant::Kind::Wait:
      case HopperMutant::Kind::LeftOut: {
        if (mutant.original.find("_group") == std::string::npos) break;
        uint64_t waited = line.completed, now = 0;
        for (const auto& [at, other] : after) {
          const auto it = before_.find(at);
          if (at != line.ptx_line && it != before_.end() && it->second.completed != other.completed)
            return "";
          now += at == line.ptx_line ? other.completed : 0;
        }
        if (waited == now) return fmt::format("each wait completes what it did, this one {}", now);
        break;
      }
      default: break;
    }
    if (mutant.original.starts_with("mbarrier.arrive") && as_often(after, line.ptx_line))
      return "every line runs as often as it did: nobody waits for what this arrives at again";
    if (mutant.original.starts_with("setmaxnreg.inc"))
      return "the emulator's registers are as many as the code names; ptxas refuses the text";
    if (mutant.original.starts_with("bar.warp.sync"))
      return "what one lane of a warp has waited for, the emulator's warp knows";
    return "";
  }

  // Whether the lines, but for this one, did what they did.
  bool as_often(const Lines& after, int but) const {
    return std::ranges::all_of(before_, [&](const auto& entry) {
      const auto it = after.find(entry.first);
      return entry.first == but || (it != after.end() && it->second.lanes == entry.second.lanes);
    });
  }

  // Two fences that do the same are each of no use beside the other: left out together they show.
  void explain_pairs(std::vector<Judgement>& all) const {
    constexpr std::string_view kWgmmaFence = "wgmma.fence";
    for (const std::string_view kind : {kWgmmaFence, std::string_view("fence.")}) {
      std::vector<std::string> changed = lines_;
      std::vector<Judgement*> pair;
      for (Judgement& j : all)
        if (j.by.empty() && j.reason.empty() && j.mutant.original.starts_with(kind)) {
          changed[j.mutant.line].clear();
          pair.push_back(&j);
        }
      if (pair.size() < 2) continue;
      bool by_result = false, same = true;
      Lines after;
      const bool none_is_needed = shown(joined(changed), by_result, same, after).empty();
      if (none_is_needed && (!same || kind != kWgmmaFence)) continue;
      for (Judgement* j : pair)
        j->reason =
            none_is_needed
                ? "wgmma alone has touched its registers since the fence before: they are watched"
                : fmt::format("{} of {} do the same: without all it shows", pair.size(), kind);
    }
  }

  std::vector<std::string> lines_;
  std::vector<RunHopper> problems_;
  std::vector<HopperRun> right_;  // by problem, then mode
  std::vector<uint64_t> most_;
  Lines before_;
};

// The rule: 95 % of the mistakes that are none for no reason must show; wrong results that nothing
// reports cannot be, as every byte of the others is as it was.
inline void check_hopper_mutants(const std::string& name, const HopperJudge& judge, size_t least) {
  size_t shown = 0, explained = 0, by_result = 0;
  std::string survivors;
  size_t never_run = 0;
  const auto all = judge.all(never_run);
  for (const HopperJudge::Judgement& j : all) {
    shown += !j.by.empty();
    by_result += j.by_result;
    explained += !j.reason.empty();
    if (j.by.empty())
      survivors += fmt::format("{}\n    {}\n", j.mutant.what(),
                               j.reason.empty() ? "survives, and nobody knows why" : j.reason);
  }
  const std::string table = fmt::format(
      "{}: {} mutants, {} show ({} by the result), {} are explained, {} are left; {} at lines that "
      "no problem runs\n{}",
      name, all.size(), shown, by_result, explained, all.size() - shown - explained, never_run,
      survivors);
  fmt::print("{}\n", table);
  INFO(table);
  CHECK(all.size() >= least);
  CHECK(shown * 100 >= (all.size() - explained) * 95);
}

}  // namespace kiln::testing
