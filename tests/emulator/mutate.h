// Mistakes put into PTX text, one at a time: what a code generator might get wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::testing {

enum class Mutation : uint8_t {
  NoBarrier,
  NoFence,
  NoWait,
  NoCommit,
  WaitLess,  // for one group less: wait_group N + 1
  WaitMore,
  NoPredicate,
  NotTransposed,
  Transposed,
};
inline constexpr size_t kMutations = 9;
std::string_view name(Mutation mutation);

struct Mutant {
  Mutation mutation;
  int line;              // of the PTX, in both texts
  std::string original;  // that line
  std::string text;
  std::string what() const;  // "line 120: without the barrier (bar.sync 0;)"
  // Threads or copies are no longer waited for, which a GPU may hide.
  bool synchronizes() const {
    return mutation <= Mutation::NoWait || mutation == Mutation::WaitLess;
  }
};

// Each barrier, fence and wait left out; each wait for one group more and one less; each predicate
// dropped; each ldmatrix transposed the other way. At every place of the text.
std::vector<Mutant> mutants(const std::string& ptx);

}  // namespace kiln::testing
