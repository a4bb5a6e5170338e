// What random programs cover of the language.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace kiln::differential {

// Counts programs by what occurs in them: ops, values of attributes, optional operands, dtypes of
// tiles and tensors, and shapes of whole programs. What only a GPU's passes make is counted too.
class Coverage {
 public:
  void add(const Kernel& kernel);
  void add(const Coverage& other);

  // A line an op, and one for each other group.
  std::string table() const;
  // What occurs too seldom for a run of as many programs, in words; empty if nothing does.
  std::vector<std::string> missed() const;

  // As text from one process to another.
  std::string text() const;
  static Coverage parse(const std::string& text);

  // Programs in which `what` occurs: "op gemm", "gemm policy=square", "share gemm".
  int count(const std::string& what) const;

 private:
  int programs_ = 0;
  std::map<std::string, int> counts_;
};

inline constexpr int kJudged = 1500;  // programs from which on `missed` is looked at

}  // namespace kiln::differential
