// The table of others' faults names tests that exist.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("the tests that the table of others' faults names exist") {
  const std::filesystem::path tests = KILN_TESTS_DIR;
  const std::regex entry("`([a-z0-9_/]+\\.[a-z]+)`(: ([^|<]*[^|< ]))?");
  int found = 0;
  std::istringstream table(text_of(tests / "OTHERS_BUGS.md"));
  for (std::string line; std::getline(table, line);) {
    if (line.rfind("| ", 0) != 0 || line.rfind("| |", 0) == 0) continue;
    INFO(line);
    int here = 0;
    for (std::sregex_iterator it(line.begin(), line.end(), entry), end; it != end; ++it, ++here) {
      INFO((*it)[0]);
      const std::string source = text_of(tests / (*it)[1].str());
      CHECK(source != "");
      if ((*it)[3].matched)
        CHECK(source.find("TEST_CASE(\"" + (*it)[3].str() + "\"") != std::string::npos);
    }
    CHECK(here > 0);
    found += here;
  }
  CHECK(found > 80);
}
