// Every C++ block of the tutorial, of docs/paged.md, docs/xattention.md and of the root README
// stands in a source that is compiled and run.
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace kiln {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(std::string(KILN_TESTS_DIR) + "/../" + path);
  std::stringstream text;
  text << file.rdbuf();
  INFO(path);
  REQUIRE(!text.str().empty());
  return text.str();
}

std::vector<std::string> cpp_blocks(const std::string& markdown) {
  const std::string open = "\n```cpp\n", close = "\n```\n";
  std::vector<std::string> blocks;
  for (size_t at = 0; (at = markdown.find(open, at)) != std::string::npos;) {
    at += open.size();
    size_t end = markdown.find(close, at);
    REQUIRE(end != std::string::npos);
    blocks.push_back(markdown.substr(at, end - at + 1));
    at = end;
  }
  return blocks;
}

void check_blocks(const std::string& markdown, const std::string& source, size_t at_least) {
  std::string program = contents(source);
  std::vector<std::string> blocks = cpp_blocks(contents(markdown));
  CHECK(blocks.size() >= at_least);
  for (const std::string& block : blocks) {
    INFO(markdown << ": not in " << source << ", word for word:\n" << block);
    CHECK(program.find("\n" + block) != std::string::npos);
  }
}

TEST_CASE("the tutorial's code is the code that is tested") {
  check_blocks("docs/tutorial.md", "tests/docs/tutorial.cpp", 7);
}

TEST_CASE("the code about paged caches is the code that is tested") {
  check_blocks("docs/paged.md", "tests/docs/paged.cpp", 2);
}

TEST_CASE("the code about XAttention is the code that is tested") {
  check_blocks("docs/xattention.md", "tests/docs/xattention.cpp", 3);
}

TEST_CASE("the README's code is the code that is tested") {
  check_blocks("README.md", "tests/docs/readme.cpp", 2);
}

}  // namespace
}  // namespace kiln
