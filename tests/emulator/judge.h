// What becomes of a mutant: it is detected, or nothing shows it and there is a reason why.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/emulator/mutate.h"
#include "tests/emulator/subject.h"

namespace kiln::testing {

enum class Verdict : uint8_t {
  Found,  // by the emulator, in a mode of asynchronous copies
  Wrong,  // no finding, but the result is not the reference's: a comparison shows it
  // Without findings, and every byte as it is without the mistake, in all problems and both modes:
  Stricter,    // it waits for more
  SameCopies,  // each wait completes the copies that it did
  OtherWay,    // lanes that the predicate held back get to the same by other instructions
  NothingNew,  // lanes that the predicate held back do, or leave out, what changes nothing
  // … or it shows nowhere and nobody knows why.
  Missed,
};
inline constexpr size_t kVerdicts = 7;
std::string_view name(Verdict verdict);
inline bool is_equivalent(Verdict v) {
  return v >= Verdict::Stricter && v <= Verdict::NothingNew;
}

struct Judgement {
  Mutant mutant;
  Verdict verdict;
  std::string evidence;  // the finding, the difference, or the reason with its figures
};

// Runs a mutant on the problems until it is detected.
Judgement judge(const Subject& subject, Mutant mutant);
// All mutants of a subject, in order, on the host's threads.
std::vector<Judgement> judge_all(const Subject& subject);
// How many of each mutation got each verdict.
std::string table(const std::vector<Judgement>& judgements);

}  // namespace kiln::testing
