// A program with what it is run with; and as text.
#pragma once

#include <string>

#include "tests/differential/generator.h"
#include "tests/support/random_bindings.h"

namespace kiln::differential {

struct Case {
  Program program;
  uint64_t seed = 1;  // of its inputs
};

testing::RandomBindings inputs_of(const Case& c);

// Its program after one line with what it is run with.
std::string text_of(const Case& c);
Case read_case(const std::string& path);

}  // namespace kiln::differential
