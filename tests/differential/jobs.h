// Work in several processes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace kiln::differential {

// Runs work(0) … work(jobs − 1), each in a process of its own (one alone: in this one), and gives
// their results in order. What they print comes as they print it. std::runtime_error if one dies.
std::vector<std::string> in_processes(int jobs, const std::function<std::string(int)>& work);

}  // namespace kiln::differential
