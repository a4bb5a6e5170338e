// Differential fuzzing from a command line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kiln::differential {

int run(int argc, char** argv);  // the exit status

// What is wrong with the program of a seed on these devices, or with what passes make of it; empty
// if nothing.
std::string check_seed(uint64_t seed, const std::vector<std::string>& devices);

}  // namespace kiln::differential
