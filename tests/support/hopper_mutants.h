// Every place of a Hopper kernel where its protocol can be wrong — arrivals, bytes, waits,
// parities, fences, commits, copies, predicates — wrong, one at a time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <regex>
#include <string>
#include <vector>

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
      R"((mbarrier\.(init|inval|arrive)|fence\.|membar\.|wgmma\.(fence|commit_group|wait_group)|cp\.async\.bulk|bar\.(warp\.)?sync|setmaxnreg)[^;]*;)");
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
    if (std::regex_search(line, left_out)) add(Kind::LeftOut, "");
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

}  // namespace kiln::testing
