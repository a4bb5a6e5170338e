// Asks ptxas, where there is one, what it makes of PTX.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>

namespace kiln::testing {

inline bool has_ptxas() {
  static const bool found = [] {
    const bool runs = std::system("ptxas --version > /dev/null 2>&1") == 0;
    if (!runs) std::cerr << "no ptxas on PATH: PTX is not assembled\n";
    return runs;
  }();
  return found;
}

// What is wrong in the text of `ptxas -v`: an advisory, a stack frame, a spill or local memory; its
// line, empty if there is none.
inline std::string advisory_in(const std::string& log) {
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    const std::string words = line.substr(std::min(line.size(), line.find_first_not_of(' ')));
    // The whole line: "80 bytes stack frame" holds "0 bytes stack frame" too.
    const bool frame = words.find("bytes stack frame") != std::string::npos;
    if (frame && words != "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads")
      return words;
    for (const char* bad : {"(C75", "lmem", "warning"})
      if (words.find(bad) != std::string::npos) return words;
  }
  return "";
}

// What ptxas makes of an entry.
struct Assembly {
  std::string fault;  // its errors, or advisory_in its log; empty if there are none, or no ptxas
  int registers = 0;  // of a thread, of the last entry; 0 if not known
};

// "Used 128 registers, …" in the text of `ptxas -v`.
inline int registers_in(const std::string& log) {
  static constexpr std::string_view kUsed = "Used ";
  const size_t at = log.rfind(kUsed);
  return at == std::string::npos ? 0 : std::atoi(log.c_str() + at + kUsed.size());
}

// For the target; that there is no ptxas is said once. From any thread.
inline Assembly assemble(const std::string& ptx, const std::string& target) {
  if (!has_ptxas()) return {};
  namespace fs = std::filesystem;
  static std::atomic<int> number = 0;
  const std::string stem =
      (fs::temp_directory_path() / ("kiln_ptx_" + std::to_string(getpid()))).string() + "_" +
      std::to_string(number++);
  const std::string source = stem + ".ptx", log = stem + ".log";
  std::ofstream(source) << ptx;
  const std::string command =
      "ptxas -v -arch=" + target + " -o /dev/null " + source + " > " + log + " 2>&1";
  const bool assembled = std::system(command.c_str()) == 0;
  std::stringstream text;
  text << std::ifstream(log).rdbuf();
  fs::remove(source);
  fs::remove(log);
  return {assembled ? advisory_in(text.str()) : text.str(), registers_in(text.str())};
}
inline std::string assembly_fault(const std::string& ptx, const std::string& target) {
  return assemble(ptx, target).fault;
}

}  // namespace kiln::testing
