// What occurs in one program, as words; and what of the language there is to occur.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "ir/kernel.h"

namespace kiln::differential {

using Occurrences = std::set<std::string>;

// In a traced program: "op gemm", "gemm policy=square", "softmax_finish lse given", "shared tile
// f16".
Occurrences occurrences_in(const Kernel& kernel);
// Of those, what the table of ops says that a traced program may have.
std::vector<std::string> all_occurrences();

// In the same program lowered for a GPU, "lowered …": ops and attributes that passes decide.
Occurrences lowered_occurrences_in(const Kernel& kernel);
std::vector<std::string> all_lowered_occurrences();

// Shapes of programs that have broken compilers: "shape: …".
Occurrences shapes_of(const Kernel& kernel);
std::vector<std::string> all_shapes();

// What a GPU's passes made of its loops, "schedule: …", and passes that it does without,
// "without …".
Occurrences schedules_of(const Kernel& kernel, const Kernel* lowered);
std::vector<std::string> all_schedules();

// Properties that a share of programs must have: "share: …", with that share in percent.
Occurrences shares_of(const Kernel& kernel, const Kernel* lowered);
struct Share {
  const char* name;
  int percent;
};
const std::vector<Share>& all_shares();

}  // namespace kiln::differential
