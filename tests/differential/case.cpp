#include "tests/differential/case.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "ir/parse.h"
#include "ir/print.h"

namespace kiln::differential {

testing::RandomBindings inputs_of(const Case& c) {
  testing::RandomOptions options;
  options.seed = c.seed;
  options.odd_strides = c.seed % 2 == 0;
  options.any_bits = c.program.any_bits;
  return testing::RandomBindings(c.program.kernel, c.program.dims, {}, options);
}

std::string text_of(const Case& c) {
  std::string header = fmt::format("// seed={}", c.seed);
  if (c.program.any_bits) header += " any_bits=1";
  for (const auto& [name, value] : c.program.dims) header += fmt::format(" {}={}", name, value);
  return header + "\n" + print(c.program.kernel);
}

Case read_case(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  Case c{{parse(text.str(), path), {}}, 1};
  std::istringstream header(text.str().substr(0, text.str().find('\n')));
  for (std::string word; header >> word;) {
    size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (name == "seed") {
      c.seed = std::stoull(value);
    } else if (name == "any_bits") {
      c.program.any_bits = value != "0";
    } else {
      c.program.dims[name] = std::stoll(value);
    }
  }
  return c;
}

}  // namespace kiln::differential
