#include "tests/emulator/mutate.h"

#include <fmt/format.h>

#include <functional>
#include <regex>

#include "tests/support/lines.h"

namespace kiln::testing {
namespace {

std::string trimmed(const std::string& line) {
  size_t first = line.find_first_not_of(" \t"), last = line.find_last_not_of(" \t");
  return first == std::string::npos ? "" : line.substr(first, last - first + 1);
}

// A line that holds the pattern becomes `replacement` of it.
struct Rule {
  Mutation mutation;
  std::regex pattern;
  std::function<std::string(const std::smatch&)> replacement;
};

std::string leave_out(const std::smatch&) {
  return "";
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {Mutation::NoBarrier, std::regex(R"((bar|barrier)\.\S*\s[^;]*;)"), leave_out},
      {Mutation::NoFence, std::regex(R"((fence|membar)\.[^;]*;)"), leave_out},
      {Mutation::NoWait, std::regex(R"(cp\.async\.wait_(group|all)[^;]*;)"), leave_out},
      {Mutation::NoCommit, std::regex(R"(cp\.async\.commit_group;)"), leave_out},
      {Mutation::WaitLess, std::regex(R"(cp\.async\.wait_group\s+(\d+);)"),
       [](const std::smatch& found) {
         return fmt::format("cp.async.wait_group {};", std::stoi(found[1]) + 1);
       }},
      {Mutation::WaitMore, std::regex(R"(cp\.async\.wait_group\s+([1-9]\d*);)"),
       [](const std::smatch& found) {
         return fmt::format("cp.async.wait_group {};", std::stoi(found[1]) - 1);
       }},
      {Mutation::NoPredicate, std::regex(R"(@!?%p\d+\s)"), leave_out},
      {Mutation::NotTransposed, std::regex(R"((ldmatrix\S*)\.trans)"),
       [](const std::smatch& found) { return found[1].str(); }},
      {Mutation::Transposed, std::regex(R"((ldmatrix\S*m8n8\.x[124])(\.shared|\.b16))"),
       [](const std::smatch& found) { return found[1].str() + ".trans" + found[2].str(); }},
  };
  return all;
}

constexpr std::string_view kNames[kMutations] = {"without the barrier",
                                                 "without the fence",
                                                 "without the wait",
                                                 "without the commit",
                                                 "waiting for one group less",
                                                 "waiting for one group more",
                                                 "without the predicate",
                                                 "not transposed",
                                                 "transposed"};

}  // namespace

std::string_view name(Mutation mutation) {
  return kNames[static_cast<size_t>(mutation)];
}

std::string Mutant::what() const {
  return fmt::format("line {}: {} ({})", line, name(mutation), original);
}

std::vector<Mutant> mutants(const std::string& ptx) {
  const std::vector<std::string> lines = lines_of(ptx);
  std::vector<Mutant> all;
  for (size_t i = 0; i < lines.size(); ++i)
    for (const Rule& rule : rules()) {
      std::smatch found;
      if (!std::regex_search(lines[i], found, rule.pattern)) continue;
      std::vector<std::string> changed = lines;
      changed[i] = found.prefix().str() + rule.replacement(found) + found.suffix().str();
      all.push_back({rule.mutation, static_cast<int>(i) + 1, trimmed(lines[i]), joined(changed)});
    }
  return all;
}

}  // namespace kiln::testing
