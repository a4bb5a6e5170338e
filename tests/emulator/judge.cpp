#include "tests/emulator/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <map>
#include <optional>
#include <thread>

namespace kiln::testing {
namespace {

constexpr std::string_view kNames[kVerdicts] = {
    "found", "wrong result", "stricter", "same copies", "other way", "nothing new", "missed"};

// What the instructions of each line did, over all runs.
struct Line {
  uint64_t lanes = 0, held_back = 0, completed = 0;
  std::string instruction;
};
using Lines = std::map<int, Line>;

void add(const Run& run, Lines& lines) {
  for (const ptx::Report& report : run.reports)
    for (const ptx::LineProfile& profile : report.lines) {
      Line& line = lines[profile.ptx_line];
      line.lanes += profile.lanes;
      line.held_back += profile.held_back;
      line.completed += profile.completed;
      line.instruction = profile.instruction;
    }
}

struct Reason {
  Verdict verdict;
  std::string text;
};

// Why a mutant shows nowhere, from what the instructions did without it and with it.
class Explanation {
 public:
  Explanation(const Mutant& mutant, Lines right, Lines changed)
      : mutant_(mutant), right_(std::move(right)), changed_(std::move(changed)) {}

  Reason reason() {
    if (right_[mutant_.line].lanes + right_[mutant_.line].held_back == 0)
      return {Verdict::Missed, "no problem gets to this line"};
    switch (mutant_.mutation) {
      case Mutation::WaitMore: return stricter();
      case Mutation::NoWait:
      case Mutation::NoCommit:
      case Mutation::WaitLess: return same_copies();
      case Mutation::NoPredicate: return predicate();
      default: return {Verdict::Missed, "every byte is the same"};
    }
  }

 private:
  Reason stricter() {
    const uint64_t before = right_[mutant_.line].completed, now = changed_[mutant_.line].completed;
    if (now < before) return {Verdict::Missed, "it completes fewer copies"};
    return {Verdict::Stricter,
            fmt::format("completes {} copies, {} of them here and not later", now, now - before)};
  }

  Reason same_copies() {
    uint64_t all = 0;
    for (auto& [at, line] : right_) {
      if (changed_[at].completed != line.completed && at != mutant_.line)
        return {Verdict::Missed, fmt::format("line {} completes {} copies, not {}", at,
                                             changed_[at].completed, line.completed)};
      all += line.completed;
    }
    if (changed_[mutant_.line].completed != right_[mutant_.line].completed)
      return {Verdict::Missed, "it completes other copies"};
    return {Verdict::SameCopies,
            fmt::format("each wait completes what it did, {} copies in all", all)};
  }

  // Both values of the predicate must have come up, so that something is done otherwise.
  Reason predicate() {
    const Line& line = right_[mutant_.line];
    if (line.held_back == 0 || line.lanes == 0)
      return {Verdict::Missed, fmt::format("{} lanes passed and {} were held back: one is missing",
                                           line.lanes, line.held_back)};
    const Change more = change(right_, changed_), less = change(changed_, right_);
    const std::string lanes =
        fmt::format("{} lanes passed, {} were held back", line.lanes, line.held_back);
    if (more.moves && less.moves)
      return {Verdict::OtherWay,
              fmt::format("{} and now get to the same by lines {} in place of {}", lanes,
                          more.lines, less.lines)};
    return {Verdict::NothingNew,
            fmt::format("{}; more lanes at lines {}, fewer at {}, and no byte is another", lanes,
                        more.lines, less.lines)};
  }

  struct Change {
    bool moves = false;  // memory
    std::string lines = "none";
  };
  // Where more lanes ran than before, other than by branches.
  Change change(const Lines& before, const Lines& now) const {
    Change change;
    int first = 0, last = 0;
    for (const auto& [at, line] : now) {
      auto it = before.find(at);
      if (line.lanes <= (it == before.end() ? 0 : it->second.lanes)) continue;
      if (line.instruction.starts_with("bra")) continue;
      if (first == 0) first = at;
      last = at;
      for (const char* mover : {"st.", "ld.", "cp.", "ldmatrix"})
        change.moves |= line.instruction.starts_with(mover);
    }
    if (first != 0) change.lines = fmt::format("{}–{}", first, last);
    return change;
  }

  const Mutant& mutant_;
  Lines right_, changed_;
};

}  // namespace

std::string_view name(Verdict verdict) {
  return kNames[static_cast<size_t>(verdict)];
}

Judgement judge(const Subject& subject, Mutant mutant) {
  Judgement judgement{std::move(mutant), Verdict::Missed, ""};
  const auto executable = subject.executable(judgement.mutant.text);
  Lines right, changed;
  bool same = true;
  for (size_t problem = 0; problem < subject.problems(); ++problem) {
    std::string finding, wrong;
    for (ptx::AsyncMode mode : kModes) {
      const Run run = subject.run(*executable, problem, mode);
      if (finding.empty()) finding = run.finding;
      if (wrong.empty()) wrong = run.wrong;
      same &= run.same;
      add(run, changed);
      add(subject.right(problem, mode), right);
    }
    if (finding.empty() && wrong.empty()) continue;
    judgement.verdict = finding.empty() ? Verdict::Wrong : Verdict::Found;
    judgement.evidence = finding.empty() ? wrong : finding;
    return judgement;
  }
  Reason reason{Verdict::Missed, "the results differ in their last bits"};
  if (same) reason = Explanation(judgement.mutant, std::move(right), std::move(changed)).reason();
  judgement.verdict = reason.verdict;
  judgement.evidence = reason.text;
  return judgement;
}

std::vector<Judgement> judge_all(const Subject& subject) {
  std::vector<Mutant> all = mutants(subject.code().ptx);
  std::vector<std::optional<Judgement>> judged(all.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i; (i = next++) < all.size();) judged[i] = judge(subject, std::move(all[i]));
  };
  std::vector<std::future<void>> workers;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    workers.push_back(std::async(std::launch::async, work));
  for (std::future<void>& worker : workers) worker.get();
  std::vector<Judgement> judgements;
  for (auto& judgement : judged) judgements.push_back(std::move(*judgement));
  return judgements;
}

std::string table(const std::vector<Judgement>& judgements) {
  std::string text = fmt::format("{:<28}", "");
  for (std::string_view verdict : kNames) text += fmt::format("{:>14}", verdict);
  text += "\n";
  for (size_t mutation = 0; mutation < kMutations; ++mutation) {
    std::array<int, kVerdicts> counts{};
    for (const Judgement& judgement : judgements)
      counts[static_cast<size_t>(judgement.verdict)] +=
          judgement.mutant.mutation == static_cast<Mutation>(mutation);
    if (std::all_of(counts.begin(), counts.end(), [](int n) { return n == 0; })) continue;
    text += fmt::format("{:<28}", name(static_cast<Mutation>(mutation)));
    for (int count : counts) text += fmt::format("{:>14}", count);
    text += "\n";
  }
  return text;
}

}  // namespace kiln::testing
