#include "tests/differential/coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "ir/error.h"
#include "passes/pipeline.h"
#include "tests/differential/occurrences.h"

namespace kiln::differential {
namespace {

constexpr int kLeast = 20;  // programs of kJudged
constexpr const char* kRefused = "refused";

// None if a GPU does not take it.
std::optional<Kernel> lowered_for_gpu(const Kernel& kernel) {
  Kernel lowered = kernel;
  lowered.target = "sm_90";
  try {
    run_passes(lowered, passes_for(lowered, Tier::Sm80));
  } catch (const Error&) {
    return std::nullopt;  // what is wrong is another check's to say
  }
  return lowered;
}

std::vector<std::string> everything() {
  std::vector<std::string> all = all_occurrences();
  for (const auto& more : {all_lowered_occurrences(), all_shapes(), all_schedules()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

// "gemm policy=square" belongs to "op gemm", which comes first.
std::string group_of(const std::string& what) {
  if (what.starts_with("op ")) return what.substr(3);
  const std::string first = what.substr(0, what.find(' '));
  return first == "shared" || first == "local" ? first + " tile" : first;
}

}  // namespace

void Coverage::add(const Kernel& kernel) {
  ++programs_;
  const std::optional<Kernel> lowered = lowered_for_gpu(kernel);
  std::vector<Occurrences> found = {occurrences_in(kernel), shapes_of(kernel),
                                    shares_of(kernel, lowered ? &*lowered : nullptr)};
  found.push_back(schedules_of(kernel, lowered ? &*lowered : nullptr));
  if (lowered) found.push_back(lowered_occurrences_in(*lowered));
  if (!lowered) ++counts_[kRefused];
  for (const Occurrences& some : found)
    for (const std::string& what : some) ++counts_[what];
}

void Coverage::add(const Coverage& other) {
  programs_ += other.programs_;
  for (const auto& [what, number] : other.counts_) counts_[what] += number;
}

int Coverage::count(const std::string& what) const {
  auto found = counts_.find(what);
  return found == counts_.end() ? 0 : found->second;
}

std::string Coverage::table() const {
  std::string text = fmt::format("of {} programs, so many have", programs_);
  std::string group;
  for (const std::string& what : everything()) {
    const std::string now = group_of(what);
    const bool is_op = what.starts_with("op ");
    if (now != group) text += fmt::format("\n  {:<16}", now);
    std::string rest = is_op ? "" : what.substr(std::min(what.size(), now.size() + 1));
    const bool is_long = now == "shape:" || now == "schedule:";
    if (is_long && now == group) text += fmt::format("\n  {:<16}", "");
    text += fmt::format(" {}{}{}", rest, rest.empty() ? "" : " ", count(what));
    if (!is_op) text += ",";
    group = now;
  }
  text += "\n";
  for (const Share& share : all_shares())
    text += fmt::format("  {}: {:.1f} %, {} % wanted\n", share.name,
                        100.0 * count(share.name) / std::max(1, programs_), share.percent);
  return text + fmt::format("  too large for a GPU: {}\n", count(kRefused));
}

std::vector<std::string> Coverage::missed() const {
  std::vector<std::string> all;
  const int least = kLeast * programs_ / kJudged;
  for (const std::string& what : everything())
    if (count(what) < least)
      all.push_back(fmt::format("{}: in {}, at least {} wanted", what, count(what), least));
  for (const Share& share : all_shares())
    if (100 * count(share.name) < share.percent * programs_)
      all.push_back(
          fmt::format("{}: in {}, {} % wanted", share.name, count(share.name), share.percent));
  return all;
}

std::string Coverage::text() const {
  std::string text = fmt::format("{}\n", programs_);
  for (const auto& [what, number] : counts_) text += fmt::format("{} {}\n", number, what);
  return text;
}

Coverage Coverage::parse(const std::string& text) {
  Coverage read;
  std::istringstream in(text);
  in >> read.programs_;
  for (int number; in >> number;) {
    std::string what;
    std::getline(in >> std::ws, what);
    read.counts_[what] = number;
  }
  return read;
}

}  // namespace kiln::differential
