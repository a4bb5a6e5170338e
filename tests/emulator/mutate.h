// Mistakes put into PTX text, one at a time: what a code generator might get wrong.
#pragma once

#include <string>
#include <vector>

namespace kiln::testing {

struct Mutant {
  std::string what;  // "line 120: without bar.sync"
  std::string text;
  bool synchronizes = false;  // what is changed is a barrier, a fence or a wait that is left out
};

// Each barrier, fence and wait left out; each wait for one group more and one less; each predicate
// dropped; each ldmatrix transposed the other way. At every place of the text.
std::vector<Mutant> mutants(const std::string& ptx);

}  // namespace kiln::testing
