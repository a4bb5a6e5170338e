#include "ir/language.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "ir/op.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/verify.h"

using namespace kiln;

TEST_CASE("LANGUAGE.md is what the op table says; KILN_UPDATE=1 rewrites it", "[language]") {
  const std::string path = std::string(KILN_TESTS_DIR) + "/../ir/LANGUAGE.md";
  if (const char* update = std::getenv("KILN_UPDATE"); update && std::string(update) == "1")
    std::ofstream(path) << language_reference();
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const bool current = text.str() == language_reference();
  CHECK(current);
}

TEST_CASE("the reference names every op and attribute", "[language]") {
  const std::string text = language_reference();
  for (const OpInfo& op : op_table()) {
    const bool found = text.find("### " + std::string(op.name) + "\n") != std::string::npos ||
                       text.find("| `" + std::string(op.name) + "` |") != std::string::npos;
    INFO(op.name);
    CHECK(found);
    for (const AttrInfo& attr : op.attrs) CHECK(text.find("`" + attr.name) != std::string::npos);
  }
}

TEST_CASE("the reference's example is a legal kernel", "[language]") {
  const std::string text = language_reference();
  const size_t begin = text.find("```\n") + 4;
  const Kernel kernel = parse(text.substr(begin, text.find("```", begin) - begin), "LANGUAGE.md");
  CHECK_NOTHROW(verify(kernel));
  CHECK(print(parse(print(kernel))) == print(kernel));
}
