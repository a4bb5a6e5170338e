#include "tests/faults/table.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace kiln::faults {
namespace {

const std::string kTable = KILN_FAULTS_DIR "/faults.json", kShown = KILN_FAULTS_DIR "/shown.json";

nlohmann::json read(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  return nlohmann::json::parse(in);
}

}  // namespace

std::vector<Fault> read_table() {
  std::vector<Fault> table;
  for (const auto& row : read(kTable)) table.push_back({row["name"], row["file"], row["why"]});
  return table;
}

std::map<std::string, uint64_t> read_shown() {
  return read(kShown).get<std::map<std::string, uint64_t>>();
}

void write_shown(const std::map<std::string, uint64_t>& seeds) {
  std::ofstream(kShown) << nlohmann::json(seeds).dump(2) << "\n";
}

}  // namespace kiln::faults
