// The faults, and which random program was seen to show each.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kiln::faults {

struct Fault {
  std::string name, file, why;
};

std::vector<Fault> read_table();  // faults.json

// By fault: the seed of a program that shows it (shown.json). Only a hint.
std::map<std::string, uint64_t> read_shown();
void write_shown(const std::map<std::string, uint64_t>& seeds);

}  // namespace kiln::faults
