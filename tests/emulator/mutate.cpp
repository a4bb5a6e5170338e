#include "tests/emulator/mutate.h"

#include <fmt/format.h>

#include <functional>
#include <regex>
#include <sstream>

namespace kiln::testing {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// A line that holds the pattern becomes `replacement` of it; empty if there is nothing to change.
struct Mutation {
  const char* name;
  std::regex pattern;
  std::function<std::string(const std::smatch&)> replacement;
  bool synchronizes = false;
};

std::string leave_out(const std::smatch&) {
  return "";
}

const std::vector<Mutation>& mutations() {
  static const std::vector<Mutation> all = {
      {"without the barrier", std::regex(R"((bar|barrier)\.\S*\s[^;]*;)"), leave_out, true},
      {"without the fence", std::regex(R"((fence|membar)\.[^;]*;)"), leave_out, true},
      {"without the wait", std::regex(R"(cp\.async\.wait_(group|all)[^;]*;)"), leave_out, true},
      {"without the commit", std::regex(R"(cp\.async\.commit_group;)"), leave_out},
      {"waiting for one group less", std::regex(R"(cp\.async\.wait_group\s+(\d+);)"),
       [](const std::smatch& found) {
         return fmt::format("cp.async.wait_group {};", std::stoi(found[1]) + 1);
       }},
      {"waiting for one group more", std::regex(R"(cp\.async\.wait_group\s+([1-9]\d*);)"),
       [](const std::smatch& found) {
         return fmt::format("cp.async.wait_group {};", std::stoi(found[1]) - 1);
       }},
      {"without the predicate", std::regex(R"(@!?%p\d+\s)"), leave_out},
      {"not transposed", std::regex(R"((ldmatrix\S*)\.trans)"),
       [](const std::smatch& found) { return found[1].str(); }},
      {"transposed", std::regex(R"((ldmatrix\S*m8n8\.x[124])(\.shared|\.b16))"),
       [](const std::smatch& found) { return found[1].str() + ".trans" + found[2].str(); }},
  };
  return all;
}

}  // namespace

std::vector<Mutant> mutants(const std::string& ptx) {
  const std::vector<std::string> lines = lines_of(ptx);
  std::vector<Mutant> all;
  for (size_t i = 0; i < lines.size(); ++i)
    for (const Mutation& mutation : mutations()) {
      std::smatch found;
      if (!std::regex_search(lines[i], found, mutation.pattern)) continue;
      std::vector<std::string> changed = lines;
      changed[i] = found.prefix().str() + mutation.replacement(found) + found.suffix().str();
      all.push_back({fmt::format("line {}: {} ({})", i + 1, mutation.name, lines[i]),
                     joined(changed), mutation.synchronizes});
    }
  return all;
}

}  // namespace kiln::testing
